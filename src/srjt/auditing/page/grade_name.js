/** A grade for people: "2" alone would look like a key. */
export const gradeName = (grade) => (/^\d+$/.test(grade) ? `Grade ${grade}` : grade);
