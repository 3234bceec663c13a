"""The figures of studies, runs and audits."""
