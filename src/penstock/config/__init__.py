"""Reads the user's configuration: the pipeline file, its variables, the options of a command.

Not here: checking a connector's ``config`` (``protocols``), resolving stream settings against a
catalog (``engine.plan.streams``). Nothing is imported by default; import the module you need:
``load`` (file -> :class:`~penstock.config.pipeline.Pipeline`), ``command_line`` (two connectors and
options -> the same), ``selectors``, ``modes``, ``home``, ``schema``.
"""
