"""The paper's whole comparison: methods × noises × folds, run once each, gathered into tables and figures."""
