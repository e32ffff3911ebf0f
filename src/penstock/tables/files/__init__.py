"""Makes files of tables out of parts and the tables' files, without Spark."""
