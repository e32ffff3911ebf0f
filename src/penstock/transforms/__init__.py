"""Built-in transforms, which change a stream's batches before its parts are written.

``contract`` defines what a worker calls; ``open`` makes a transform by its name; ``sql`` and
``validate`` implement the contract; ``chain`` plans and applies several; ``spark_sql`` checks
queries over whole streams, which Spark runs. Not here: transforms that are connectors
(``protocols.rapidbyte``)."""
