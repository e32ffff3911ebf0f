"""Records what a run does, makes the run's report, and sends it to hooks and telemetry.

``accounting`` counts, ``timeline`` has the seconds; ``hooks`` calls the user's programs and URLs,
``telemetry`` sends through ``opentelemetry`` and ``openlineage``. Runs in the driver; decides
nothing. Not here: the report's own form (``model.report``), what people see (``terminal``).
"""
