"""Rotation, zoom, colour and cutout of training images."""

import math
from dataclasses import replace

import pytest
import torch

from srjt.data.images import augment, feed
from srjt.data.images.augment import AUGMENTATIONS, Augmentation

NONE = Augmentation(
    rotation=0.0,
    zoom=1.0,
    upside_down=False,
    brightness=0.0,
    contrast=0.0,
    saturation=0.0,
    cutout=0.0,
)
SIZE = 12


def images(count=4, side=16):
    draws = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, side, side, 3), generator=draws, dtype=torch.uint8)


def changed(pixels, limits, *, flip=False, **numbers):
    """Every image in the centre, with all draws in the middle, which changes nothing, but for
    ``numbers``."""
    draws = torch.full((len(pixels), augment.DRAWS), 0.5)
    draws[:, 2] = 1.0  # not upside down
    for name, value in numbers.items():
        draws[:, int(name.removeprefix("draw"))] = value
    margin = pixels.shape[1] - SIZE
    crop = feed.centre_crops(len(pixels), margin=margin)
    flips = torch.full((len(pixels),), flip)
    changes = augment.changes_from(draws, limits)
    return augment.change(pixels, crop.offsets, flips, changes, size=SIZE, cutout=limits.cutout)


def centre(pixels):
    side = pixels.shape[1]
    return feed.crop_alike(pixels, feed.centre_crops(1, margin=side - SIZE), size=SIZE).float()


def test_without_changes_it_is_a_crop_and_a_mirror_image():
    pixels = images()
    draws = torch.Generator().manual_seed(2)
    crops = feed.draw_crops((len(pixels),), margin=4, generator=draws)
    changes = augment.draw_changes((len(pixels),), limits=NONE, generator=draws)
    found = augment.change(pixels, crops.offsets, crops.flips, changes, size=SIZE)
    plain = feed.crop_and_flip(pixels, crops.offsets, crops.flips, size=SIZE).float()
    torch.testing.assert_close(found, plain, atol=1e-2, rtol=0)


def test_a_quarter_turn_either_way():
    pixels = images()
    limits = replace(NONE, rotation=90.0)
    left = changed(pixels, limits, draw0=0.0)
    right = changed(pixels, limits, draw0=1.0)
    torch.testing.assert_close(left, centre(pixels).rot90(-1, (2, 3)), atol=1e-2, rtol=0)
    torch.testing.assert_close(right, centre(pixels).rot90(1, (2, 3)), atol=1e-2, rtol=0)


def test_upside_down_comes_before_the_turn():
    pixels = images()
    limits = replace(NONE, rotation=90.0, upside_down=True)
    found = changed(pixels, limits, draw0=1.0, draw2=0.1)
    torch.testing.assert_close(found, centre(pixels).rot90(1, (2, 3)).flip(2), atol=1e-2, rtol=0)


def test_a_batch_is_stored_by_pixels_as_networks_want_it():
    assert changed(images(), NONE).is_contiguous(memory_format=torch.channels_last)


def test_upside_down_half_of_the_time():
    pixels = images()
    limits = replace(NONE, upside_down=True)
    found = changed(pixels, limits, draw2=0.49)
    torch.testing.assert_close(found, centre(pixels).flip(2), atol=1e-2, rtol=0)
    torch.testing.assert_close(changed(pixels, limits), centre(pixels), atol=1e-2, rtol=0)


def test_zoom_is_a_factor_about_the_centre():
    ramp = torch.arange(16, dtype=torch.uint8)[None, :, None, None] * 10
    pixels = ramp.expand(1, 16, 16, 3).contiguous()  # brightness grows downwards by 10 a pixel
    for draw, factor in ((1.0, 1.25), (0.0, 1 / 1.25), (0.5, 1.0)):
        found = changed(pixels, replace(NONE, zoom=1.25), draw1=draw)
        steps = found[0, 0, 1:, 5] - found[0, 0, :-1, 5]
        torch.testing.assert_close(steps, torch.full_like(steps, 10 * factor), atol=1e-2, rtol=0)


@pytest.mark.parametrize(("draw", "factor"), [(0.0, 0.7), (1.0, 1.3)])
def test_colours(draw, factor):
    pixels = 100 + images() // 16  # far from 0 and 255, so that nothing is cut off
    plain = centre(pixels)
    brighter = changed(pixels, replace(NONE, brightness=0.3), draw5=draw)
    torch.testing.assert_close(brighter, plain * factor, atol=1e-2, rtol=1e-4)
    mean = plain.mean(dim=(1, 2, 3), keepdim=True)
    harder = changed(pixels, replace(NONE, contrast=0.3), draw3=draw)
    torch.testing.assert_close(harder, mean + (plain - mean) * factor, atol=1e-2, rtol=1e-4)
    grey = plain.mean(dim=1, keepdim=True)
    richer = changed(pixels, replace(NONE, saturation=0.3), draw4=draw)
    torch.testing.assert_close(richer, grey + (plain - grey) * factor, atol=1e-2, rtol=1e-4)


def test_pixels_stay_between_0_and_255():
    draws = torch.Generator().manual_seed(3)
    pixels = images(count=16, side=24)
    crops = feed.draw_crops((16,), margin=12, generator=draws)
    for limits in AUGMENTATIONS.values():
        changes = augment.draw_changes((16,), limits=limits, generator=draws)
        found = augment.change(
            pixels, crops.offsets, crops.flips, changes, size=SIZE, cutout=limits.cutout
        )
        assert found.shape == (16, 3, SIZE, SIZE)
        assert found.min() >= 0
        assert found.max() <= 255


def test_cutout_is_one_square_of_the_mean():
    pixels = images()
    found = changed(pixels, replace(NONE, cutout=0.5), draw6=0.5, draw7=0.25)
    plain = centre(pixels)
    mean = plain.mean(dim=(1, 2, 3))
    is_cut = (found - mean[:, None, None, None]).abs().amax(dim=1) < 1e-2
    expected = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    expected[4:9, 1:6] = True  # within 3 of (6, 3), where 3 is half of half the side
    assert (is_cut == expected).all()
    kept = ~expected
    torch.testing.assert_close(found[:, :, kept], plain[:, :, kept], atol=1e-2, rtol=0)


def test_limits_are_reached_and_not_passed():
    draws = torch.Generator().manual_seed(4)
    changes = augment.draw_changes((10_000,), limits=AUGMENTATIONS["light"], generator=draws)
    angles = torch.rad2deg(torch.atan2(changes[:, 1], changes[:, 0]))
    assert -15.001 <= angles.min() < -14.9
    assert 14.9 < angles.max() <= 15.001
    assert math.isclose(angles.mean(), 0, abs_tol=0.5)
    zooms = changes[:, :2].norm(dim=1)
    assert 1 / 1.101 <= zooms.min() < 1 / 1.098
    assert 1.098 < zooms.max() <= 1.101
    assert math.isclose(zooms.log().mean(), 0, abs_tol=0.005)
    strong = augment.draw_changes((10_000,), limits=AUGMENTATIONS["strong"], generator=draws)
    over = strong[:, 0] * strong[:, 3] - strong[:, 1] * strong[:, 2] < 0  # a mirror image
    assert math.isclose(over.float().mean(), 0.5, abs_tol=0.02)


def test_the_mean_of_an_image_changes_with_its_brightness_alone():
    pixels = 100 + images() // 16
    mean = centre(pixels).mean(dim=(1, 2, 3))
    limits = replace(NONE, brightness=0.2, contrast=0.3, saturation=0.3)
    found = changed(pixels, limits, draw3=0.9, draw4=0.2, draw5=1.0)
    torch.testing.assert_close(found.mean(dim=(1, 2, 3)), mean * 1.2, atol=1e-2, rtol=1e-4)


def test_colours_are_changed_one_after_the_other():
    """Contrast, saturation and brightness at once are what each does to the result of the one
    before."""
    pixels = 100 + images() // 16
    limits = replace(NONE, brightness=0.2, contrast=0.3, saturation=0.4)
    found = changed(pixels, limits, draw3=0.9, draw4=0.2, draw5=0.7)
    expected = centre(pixels)
    mean = expected.mean(dim=(1, 2, 3), keepdim=True)
    expected = mean + (expected - mean) * 1.24
    grey = expected.mean(dim=1, keepdim=True)
    expected = (grey + (expected - grey) * 0.76) * 1.08
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=1e-4)
