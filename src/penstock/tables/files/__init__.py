"""Builds files of tables from parts and the tables' files, without Spark."""
