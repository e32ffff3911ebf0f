"""Writes the completion script of a shell: ``penstock completion bash | zsh | fish``.

A script holds every verb and option, and the packages in the index of connectors, so that
completion starts no process of Penstock; it matches the version that wrote it. The options are
those that Typer lists for each verb. Not here: the verbs themselves (``cli.VERBS``).
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

from penstock.api.roles import AskedRole
from penstock.cli import VERBS
from penstock.cli.app import Surface, verb
from penstock.config.modes import DESTINATION_WORDS, SYNC_WORDS
from penstock.connectors.catalog.suggest import packages
from penstock.errors import ConfigError

_FILES = ("FILE", "JSON|@FILE")
_FOLDERS = ("DIR",)
_PIPELINE = "PIPELINE"
_CONNECTORS = frozenset({"CONNECTOR", "SOURCE", "DESTINATION", "TARGET"})
_WORDS = {
    "--sync-mode": (*SYNC_WORDS,),
    "--destination-sync-mode": (*DESTINATION_WORDS,),
    "--role": (*AskedRole,),
}


class Option(NamedTuple):
    """One option of a verb. ``flags``: all its spellings. ``metavar``: the placeholder of its
    value; None: it takes none."""

    flags: tuple[str, ...]
    metavar: str | None
    help: str

    @property
    def words(self) -> tuple[str, ...]:
        """Its possible values; empty where they cannot be listed."""
        return next((_WORDS[flag] for flag in self.flags if flag in _WORDS), ())


class Command(NamedTuple):
    """One command line: a verb, or one verb of a group. ``words``: the possible arguments, if they
    can be listed. ``pipelines``: its argument may be a pipeline file; ``connectors``: a
    connector."""

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...] = ()
    pipelines: bool = False
    connectors: bool = False


@verb(
    "penstock completion bash > ~/.local/share/bash-completion/completions/penstock",
    "penstock completion zsh > ~/.zfunc/_penstock",
    "penstock completion fish > ~/.config/fish/completions/penstock.fish",
)
def completion(
    surface: Surface,
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """A script that completes verbs, options and pipeline files in a shell."""
    write = _SHELLS.get(shell)
    if write is None:
        raise ConfigError(
            f"there is no completion for {shell}", code="usage", hint=f"one of {', '.join(_SHELLS)}"
        )
    script = "\n".join(write([*commands()])) + "\n"
    surface.output.answer({"shell": shell, "script": script}, lambda: script.splitlines())


def commands() -> Iterator[Command]:
    """Yields every command line of Penstock; a group's own name first, with its verbs as words."""
    for name, known in VERBS.items():
        app: Any = get_command(getattr(import_module(f"penstock.cli.{known.module}"), known.app))
        inner: dict[str, Any] = getattr(app, "commands", {})
        if not inner:
            yield _command((name,), known.summary, app)
            continue
        yield Command((name,), known.summary, (_HELP,), tuple(inner))
        for word, each in inner.items():
            yield _command((name, word), _sentence(each.help), each)


_HELP = Option(("-h", "--help"), None, "Show the help.")


def _command(path: tuple[str, ...], summary: str, app: Any) -> Command:
    options, arguments = [_HELP], list[str]()
    for each in app.params:
        if not each.opts[0].startswith("-"):
            arguments.append(each.metavar or "")
            continue
        bare = each.is_flag or each.count
        options.append(
            Option(tuple(each.opts), None if bare else each.metavar or "", _sentence(each.help))
        )
    words = tuple(_SHELLS) if arguments == ["SHELL"] else ()
    connectors = not _CONNECTORS.isdisjoint(arguments)
    return Command(path, summary, tuple(options), words, _PIPELINE in arguments, connectors)


def _by_protocol() -> dict[str, list[str]]:
    """Returns the names of packages, by protocol."""
    found: dict[str, list[str]] = {}
    for reference in packages():
        protocol, _, name = reference.partition(":")
        found.setdefault(protocol, []).append(name)
    return found


def _sentence(help_text: str | None) -> str:
    """Returns the first line of a help."""
    return (help_text or "").strip().partition("\n")[0]


# -- bash: no bash-completion package is needed, and none newer than bash 3.2

_BASH = r"""# Completion of penstock for bash. Made by `penstock completion bash`.
_penstock_files() {
  local IFS=$'\n'
  compopt -o filenames 2>/dev/null
  case "$1" in
    yaml) COMPREPLY=($(compgen -d -- "$cur"; compgen -f -X '!*.yaml' -- "$cur"
                       compgen -f -X '!*.yml' -- "$cur")) ;;
    folders) COMPREPLY=($(compgen -d -- "$cur")) ;;
    *) COMPREPLY=($(compgen -f -- "$cur")) ;;
  esac
}
_penstock_connectors() {  # a shell splits words at colons, or does not (COMP_WORDBREAKS)
  local protocol="" word="$cur" front="" heads="" before=${#COMPREPLY[@]}
  case "$cur" in
    :) protocol="$prev" word="" ;;
    *:*) protocol="${cur%%:*}" word="${cur#*:}" front="$protocol:" ;;
    *) [ "$prev" = ":" ] && protocol="${COMP_WORDS[COMP_CWORD-2]}" ;;
  esac
  case "$protocol" in
    "") heads="$(compgen -W "@PROTOCOLS@" -- "$word")"
        [ "$before" -eq 0 ] && compopt +o filenames -o nospace 2>/dev/null
        COMPREPLY+=($heads) ;;
@NAMES@
  esac
}
_penstock() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"
  local command="${COMP_WORDS[1]}" options="" words="" files="" folders="" values="" yaml=""
  local connectors=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "@VERBS@ --help --version" -- "$cur"))
    return
  fi
  case "$command" in
    @GROUPS@) [ "$COMP_CWORD" -gt 2 ] && command="$command ${COMP_WORDS[2]}" ;;
  esac
  case "$command" in
@CASES@
  esac
  case "$command $prev" in
@WORDS@
  esac
  case " $files " in *" $prev "*) _penstock_files any; return ;; esac
  case " $folders " in *" $prev "*) _penstock_files folders; return ;; esac
  case " $values " in *" $prev "*) return ;; esac
  case "$cur" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$cur")) ;;
    *) if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$cur"))
       else
         case "$connectors$prev$cur" in
           1*:*) ;;
           *) _penstock_files "${yaml:-any}" ;;
         esac
         [ -n "$connectors" ] && _penstock_connectors
       fi ;;
  esac
}
complete -F _penstock penstock"""


def _bash(found: Sequence[Command]) -> Iterator[str]:
    groups = dict.fromkeys(c.path[0] for c in found if len(c.path) > 1)
    cases: list[str] = []
    words: list[str] = []
    for each in found:
        name = " ".join(each.path)
        parts = {
            "options": [f for o in each.options for f in o.flags],
            "words": each.words,
            "files": _flags(each, _FILES),
            "folders": _flags(each, _FOLDERS),
            "values": [f for o in each.options if _free(o) for f in o.flags],
            "yaml": ["yaml"] if each.pipelines else [],
            "connectors": ["1"] if each.connectors else [],
        }
        said = " ".join(f'{key}="{" ".join(some)}"' for key, some in parts.items() if some)
        cases.append(f'    "{name}") {said} ;;')
        words += [
            f'    "{name} {flag}") COMPREPLY=($(compgen -W "{" ".join(o.words)}" -- "$cur")); '
            "return ;;"
            for o in each.options
            if o.words
            for flag in o.flags
        ]
    names = [
        f'    {protocol}) COMPREPLY=($(compgen -P "$front" -W "{" ".join(known)}" -- "$word")) ;;'
        for protocol, known in _by_protocol().items()
    ]
    text = _BASH.replace("@VERBS@", " ".join(VERBS)).replace("@GROUPS@", "|".join(groups))
    text = text.replace("@PROTOCOLS@", " ".join(f"{name}:" for name in _by_protocol()))
    text = text.replace("@NAMES@", "\n".join(names))
    yield text.replace("@CASES@", "\n".join(cases)).replace("@WORDS@", "\n".join(words))


def _flags(command: Command, metavars: Sequence[str]) -> list[str]:
    return [f for o in command.options if o.metavar in metavars for f in o.flags]


def _free(option: Option) -> bool:
    """Returns whether it takes a value of unknown kind."""
    known = option.metavar is None or option.metavar in (*_FILES, *_FOLDERS)
    return not (known or option.words)


# -- zsh


def _zsh(found: Sequence[Command]) -> Iterator[str]:
    yield "#compdef penstock"
    yield "# Completion of penstock for zsh. Made by `penstock completion zsh`."
    yield "_penstock_connectors() {"
    yield f"  local -a known=({' '.join(packages())})"
    yield "  _wanted connectors expl connector compadd -a known"
    yield "}"
    for each in found:
        yield f"_penstock_{'_'.join(each.path)}() {{"
        inner = [c for c in found if c.path[:-1] == each.path]
        if inner:
            yield "  if (( CURRENT == 2 )); then"
            yield f"    local -a verbs=({' '.join(_quoted(_described(c)) for c in inner)})"
            yield "    _describe verb verbs"
            yield "  else"
            yield "    local word=$words[2]; shift words; (( CURRENT-- ))"
            function = f"_penstock_{each.path[0]}_$word"
            yield f'    (( $+functions[{function}] )) && "{function}"'
            yield "  fi"
        else:
            specs = [s for o in each.options for s in _zsh_option(o)]
            specs.append(_zsh_argument(each))
            yield "  _arguments -s " + " \\\n    ".join(_quoted(s) for s in specs)
        yield "}"
    yield "_penstock() {"
    yield "  if (( CURRENT == 2 )); then"
    tops = [c for c in found if len(c.path) == 1]
    yield f"    local -a verbs=({' '.join(_quoted(_described(c)) for c in tops)})"
    yield "    _describe verb verbs"
    yield "  else"
    yield "    local word=$words[2]; shift words; (( CURRENT-- ))"
    yield '    (( $+functions[_penstock_$word] )) && "_penstock_$word"'
    yield "  fi"
    yield "}"
    yield 'if [ "$funcstack[1]" = _penstock ]; then _penstock "$@"'
    yield "else compdef _penstock penstock; fi"


def _described(command: Command) -> str:
    return f"{command.path[-1]}:{command.help}"


def _zsh_option(option: Option) -> Iterator[str]:
    said = option.help.replace("[", r"\[").replace("]", r"\]").replace(":", r"\:")
    for flag in option.flags:
        value = ""
        if option.metavar is not None:
            what = option.metavar.lower().replace(":", r"\:") or "value"
            value = f":{what}:{_zsh_values(option)}"
        yield f"*{flag}[{said}]{value}"


def _zsh_values(option: Option) -> str:
    if option.words:
        return f"({' '.join(option.words)})"
    if option.metavar in _FOLDERS:
        return "_files -/"
    return "_files" if option.metavar in _FILES else " "


def _zsh_argument(command: Command) -> str:
    if command.words:
        return f"*:word:({' '.join(command.words)})"
    files = '_files -g "*.(yaml|yml)"' if command.pipelines else "_files"
    if command.connectors:
        return f"*:connector:{{_penstock_connectors; {files}}}"
    return f"*:{'pipeline' if command.pipelines else 'file'}:{files}"


# -- fish


def _fish(found: Sequence[Command]) -> Iterator[str]:
    yield "# Completion of penstock for fish. Made by `penstock completion fish`."
    yield "complete -c penstock -f"
    known = _quoted(" ".join(packages()))
    yield f"function __penstock_connectors; string split ' ' -- {known}; end"
    for each in found:
        *parent, word = each.path
        above = f"__fish_seen_subcommand_from {parent[0]}" if parent else "__fish_use_subcommand"
        if parent:
            siblings = " ".join(
                c.path[1] for c in found if c.path[:1] == each.path[:1] and c.path[1:]
            )
            above += f"; and not __fish_seen_subcommand_from {siblings}"
        yield f"complete -c penstock -n {_quoted(above)} -a {word} -d {_quoted(each.help)}"
    for each in found:
        if any(c.path[:-1] == each.path for c in found):
            continue
        here = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in each.path)
        head = f"complete -c penstock -n {_quoted(here)}"
        if each.words:
            yield f"{head} -a {_quoted(' '.join(each.words))}"
        elif each.pipelines:
            yield f"{head} -a '(__fish_complete_suffix .yaml; __fish_complete_suffix .yml)'"
        else:
            yield f"{head} -F"
        if each.connectors:
            yield f"{head} -a '(__penstock_connectors)'"
        for option in each.options:
            flags = " ".join(
                f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags
            )
            yield f"{head} {flags}{_fish_value(option)} -d {_quoted(option.help)}"


def _fish_value(option: Option) -> str:
    if option.metavar is None:
        return ""
    if option.words:
        return f" -x -a {_quoted(' '.join(option.words))}"
    if option.metavar in _FOLDERS:
        return " -x -a '(__fish_complete_directories)'"
    return " -r -F" if option.metavar in _FILES else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
