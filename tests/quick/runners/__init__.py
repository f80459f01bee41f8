"""Tests of what runners prepare, without a learner."""
