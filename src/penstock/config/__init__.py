"""What the user wrote, made exact: the pipeline file, its variables, the options of a command.

Not here: what a connector thinks of its ``config`` (``protocols``), and what a sync makes of the
wishes (``engine.plan.streams``). Nothing is imported by default; take the module you need:
``load`` (file -> :class:`~penstock.config.pipeline.Pipeline`), ``command_line`` (two connectors and
options -> the same), ``selectors``, ``modes``, ``home``, ``schema``.
"""
