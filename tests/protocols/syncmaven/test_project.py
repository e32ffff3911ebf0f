"""A Syncmaven project as pipelines: files, variables, and what is refused before anything runs."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.config.project import Project, ProjectSelection, project_protocol
from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import open_known
from penstock.engine.plan.place import SettledPlace, settle_place, store_place
from penstock.errors import ConfigError
from penstock.protocols import project_reader
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path / "crm"
        for kind in ("models", "connections", "syncs"):
            (self.path / kind).mkdir(parents=True)
        self.write("models/users.yml", "datasource: ${env.PG}\nquery: SELECT 1 AS id\n")
        self.write(
            "connections/mail.yml",
            "package: { type: docker, image: 'syncmaven/resend:latest' }\n"
            "credentials: { key: '{{ env.KEY }}' }\n",
        )
        self.write("syncs/mail.yml", "model: users\ndestination: mail\n")
        self.environ = {"PG": "postgres://u:pw@h/d", "KEY": "k3y-value"}

    def write(self, file: str, text: str) -> None:
        (self.path / file).write_text(text)

    def read(self, *select: str, **more: Any) -> Project:
        wanted = ProjectSelection(folder=self.path, environ=self.environ, select=select, **more)
        protocol = project_protocol(self.path)
        assert protocol is not None
        return project_reader(protocol)(wanted)

    def one(self, **more: Any) -> Pipeline:
        (pipeline,) = self.read(**more).pipelines.values()
        return pipeline

    def problems(self, *select: str) -> list[str]:
        with pytest.raises(ConfigError) as refused:
            self.read(*select)
        assert refused.value.hint and refused.value.code in ("config.project", "config.yaml")
        return refused.value.problems or [refused.value.message]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return Folder(tmp_path)


def test_a_sync_is_a_pipeline_with_a_name_of_its_own(folder: Folder) -> None:
    folder.write("syncs/mail.yml", """
id: weekly
model: users
destination: mail
stream: audience
options: { audience: "${env.NOBODY:everyone}" }
checkpointEvery: 100
""")  # fmt: skip
    project = folder.read()
    assert (project.name, list(project.pipelines)) == ("crm", ["weekly"])
    made = project.pipelines["weekly"]
    assert made.pipeline == "crm.weekly"
    assert made.source.config == {"stream": "users", "datasource": "postgres://u:pw@h/d"}
    assert made.source.use == "spark: SELECT 1 AS id" and made.source.defaults.mode == "append"
    assert made.destination.use == "syncmaven:docker:syncmaven/resend:latest"
    assert made.destination.config == {"key": "k3y-value"}
    assert (made.destination.stream, made.destination.options) == (
        "audience", {"audience": "everyone"},
    )  # fmt: skip
    assert made.destination.protocol_keys == {"checkpoint_every": 100}
    assert made.secret_values == {"k3y-value", "postgres://u:pw@h/d"}
    assert "k3y-value" not in repr(made)
    assert folder.read(name="other").pipelines["weekly"].pipeline == "other.weekly"


def test_an_sql_file_sets_keys_in_comments(folder: Folder) -> None:
    (folder.path / "models/users.yml").unlink()
    folder.write("models/all.users.sql", """
--{{ config "id" "users" }}
-- {{ config "datasource" env.PG }}
--{{ config 'cursor' 'at' }}
SELECT *, ':x' AS a -- all of {{ env.KEY }}
FROM users WHERE :cursor IS NULL OR at >= :cursor
""")  # fmt: skip
    made = folder.one()
    assert made.source.defaults.cursor_field == ("at",)
    assert made.source.config["datasource"] == "postgres://u:pw@h/d"
    assert made.source.use.startswith("spark: SELECT *, ':x' AS a -- all of k3y-value\nFROM")


@pytest.mark.parametrize(
    "value",
    ["a&b=c<'\"", "${env.PG}", "{{ env.KEY }}", "\u2028 Zo\u00eb \U0001f600", "a: [1", "$${x}"],
)
def test_a_value_is_put_in_as_it_is_and_names_no_other_variable(folder: Folder, value: str) -> None:
    """Nothing is escaped for HTML, and a value is not read again: two that name each other end."""
    folder.environ |= {"KEY": value, "PG": "{{ env.KEY }}"}
    folder.write("models/users.yml", "query: SELECT 1 AS id\n")
    assert folder.one().destination.config == {"key": value}


def test_the_last_file_of_variables_counts_and_the_environment_more(folder: Folder) -> None:
    """As the host's page Project says."""
    names = [f"V{i}" for i in range(6)]
    extra = Path.cwd() / "extra.env"
    files = [folder.path / ".env", folder.path / ".env.local", Path(".env"), Path(".env.local")]
    for number, file in enumerate([*files, extra]):
        file.write_text("".join(f"{name}=file-{number}\n" for name in names[number:]))
    folder.environ["V5"] = "process"
    texts = ", ".join(f"{name}: '${{env.{name}}}'" for name in names)
    folder.write("syncs/mail.yml", f"model: users\ndestination: mail\noptions: {{ {texts} }}\n")
    found = folder.one(env_files=(str(extra),)).destination.options
    assert found == {f"V{i}": f"file-{i}" for i in range(5)} | {"V5": "process"}


def test_a_command_runs_in_its_packages_folder(folder: Folder) -> None:
    package = folder.path / "my package"
    package.mkdir()
    script = f"{{ type: npm, dir: 'my package', command: '{sys.executable} dest.py' }}"
    folder.write("connections/mail.yml", f"package: {script}\n")
    made = folder.one()
    assert made.destination.use == f"syncmaven:{shlex.join([sys.executable, 'dest.py'])}"
    assert made.destination.folder == str(package)


def test_a_package_of_npm_is_named(folder: Folder) -> None:
    folder.write("connections/mail.yml", "package: { type: npm, package: '@crm/mail@1.2.0' }\n")
    assert folder.one().destination.use == "syncmaven:@crm/mail@1.2.0"


def test_keys_of_a_pipeline_file_stand_under_penstock(folder: Folder) -> None:
    folder.write("syncs/mail.yml", """
model: users
destination: mail
penstock:
  source: { defaults: { mode: upsert, primary_key: id } }
  destination: { on_failed_rows: isolate }
""")  # fmt: skip
    made = folder.one()
    assert made.source.defaults.primary_key == (("id",),) and made.source.defaults.mode == "upsert"
    assert made.destination.protocol_keys == {"on_failed_rows": "isolate"}
    folder.write("syncs/mail.yml", "model: users\ndestination: mail\npenstock: { lane: 2 }\n")
    assert folder.problems() == ["syncs/mail.yml: unknown key 'lane'; did you mean 'lanes'?"]


@pytest.mark.parametrize("key", ["enrichment", "enrichments"])
def test_an_enrichment_is_a_connection_with_options(folder: Folder, key: str) -> None:
    folder.write(
        "connections/firm.yml",
        "package: { type: npm, package: '@crm/firm@2.0.0' }\n"
        "credentials: { key: '{{ env.KEY }}' }\n",
    )
    entry = "{ connection: firm, options: { deep: true }, penstock: { processes: 2 } }"
    inline = "{ connection: { package: { image: 'acme/score:1' } } }"
    given = entry if key == "enrichment" else f"[{entry}, {inline}]"
    folder.write("syncs/mail.yml", f"model: users\ndestination: mail\n{key}: {given}\n")
    made = folder.one()
    first = made.enrichments[0]
    assert (first.use, first.config) == ("syncmaven:@crm/firm@2.0.0", {"key": "k3y-value"})
    assert (first.options, first.processes) == ({"deep": True}, 2)
    assert [e.use for e in made.enrichments[1:]] == ["syncmaven:docker:acme/score:1"][
        : key == "enrichments"
    ]


def test_other_files_and_unknown_keys_are_told_and_passed_over(folder: Folder) -> None:
    for file in ("models/.gitkeep", "syncs/.gitkeep", "models/README.md"):
        folder.write(file, "")
    folder.write("syncs/mail.yml", "model: users\ndestination: mail\nmodell: x\n")
    folder.write("syncs/off.yml", "model: nothing\ndestination: mail\ndisabled: true\n")
    project = folder.read()
    assert list(project.pipelines) == ["mail"]
    assert sorted(project.notes) == [
        "models/README.md is not a file of a project: it is ignored",
        "off is disabled in syncs/off.yml: --select off runs it",
        "syncs/mail.yml:3: unknown key 'modell' is ignored; did you mean 'model'?",
    ]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("syncs/mail.yml", "model: user\ndestination: mail\n",
         "syncs/mail.yml:1: model: there is no 'user' in models/; did you mean 'users'?"),
        ("syncs/mail.yml", "model: users\ndestination: smtp\n",
         "syncs/mail.yml:2: destination: there is no 'smtp' in connections/; known: mail"),
        ("syncs/mail.yml", "model: users\n", "destination: it is missing"),
        ("syncs/mail.yml", "model: users\ndestination: mail\nmapping: { a: b }\n",
         "syncs/mail.yml:3: mapping: write it under `penstock`"),
        ("syncs/mail.yml", "model: users\ndestination: mail\nenrichments: [{ connection: x }]\n",
         "syncs/mail.yml:3: enrichments: there is no 'x' in connections/; known: mail"),
        ("syncs/mail.yml", "model: users\ndestination: mail\nenrichment: mail\n",
         "syncs/mail.yml:3: enrichment: each entry has a `connection`"),
        ("syncs/mail.yml", "model: users\ndestination: mail\nenrichment: { options: {} }\n",
         "syncs/mail.yml:3: enrichment: it is missing"),
        ("syncs/mail.yml", "model: users\ndestination: mail\ncheckpointEvery: often\n",
         "checkpoint_every"),
        ("syncs/mail.yml", "- model\n", "it is not a mapping"),
        ("syncs/mail.yml", "model: [\n", "syncs/mail.yml:"),
        ("syncs/mail.json", "{model: 'users', destination: ", "it is not JSON5"),
        ("syncs/other.yml", "id: mail\nmodel: users\ndestination: mail\n",
         "syncs/mail.yml has the id 'mail' too"),
        ("models/users.yml", "datasource: { type: bigquery }\nquery: SELECT 1\n",
         "models/users.yml:1: datasource: 'bigquery' cannot be queried"),
        ("models/users.yml", "datasource: mysql://u:p@h/d\nquery: SELECT 1\n",
         "models/users.yml:1: datasource: 'mysql' cannot be queried"),
        ("models/users.yml", "query: SELECT 1\ncursor: at\n", "the query does not use :cursor"),
        ("models/users.yml", "query: SELECT 1 WHERE a > :cursor\n", "name its column"),
        ("models/users.yml", "query: ${env.NO}\n", "models/users.yml:1: variable NO is not set"),
        ("models/users.yml", "query: '{{ env.NO }}'\n", "variable NO is not set"),
        ("models/users.yml", "query: SELECT '${foo}'\n", "'${foo}' is not a variable"),
        ("models/users.yml", "deleteField: gone\nquery: SELECT 1\n", "deleteField"),
        ("connections/mail.yml", "package: { type: npm, package: 'x@^1' }\n",
         "connections/mail.yml:1: package: 'x@^1' is not NAME or NAME@VERSION"),
        ("connections/mail.yml", "package: { type: npm, dir: nowhere }\n", "there is no folder"),
        ("connections/mail.yml", "package: { type: npm, dir: ., command: no-such-program }\n",
         "there is no program 'no-such-program'"),
        ("connections/mail.yml", "package: { type: deno }\n", "'deno' is not known"),
        ("connections/mail.yml", "credentials: {}\n", "package: it needs `type`"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(
    folder: Folder, file: str, text: str, said: str
) -> None:
    folder.write(file, text)
    assert said in folder.problems()[0]


def test_all_faults_of_what_is_selected_are_told_and_of_nothing_else(folder: Folder) -> None:
    folder.write("syncs/a.yml", "model: a\ndestination: b\n")
    folder.write("syncs/b.yml", "model: c\ndestination: mail\n")
    assert len(folder.problems()) == 3 and len(folder.problems("a", "mail")) == 2
    assert list(folder.read("mail").pipelines) == ["mail"]


def test_an_unknown_sync_and_a_folder_that_is_no_project_are_refused(
    folder: Folder, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="there is no 'mial'; did you mean 'mail'") as refused:
        folder.read("mial")
    assert refused.value.code == "config.unknown_sync"
    assert project_protocol(tmp_path) is None
    (folder.path / "models/users.yml").unlink()
    (folder.path / "models").rmdir()
    with pytest.raises(ConfigError, match="has no folder models/"):
        folder.read()
    (folder.path / "models").mkdir()
    (folder.path / "syncs/mail.yml").unlink()
    with pytest.raises(ConfigError, match="has no sync to run"):
        folder.read()


def test_a_project_has_a_place_and_its_paths_start_there(folder: Folder) -> None:
    """Two folders of one name are two projects; a name that was given belongs to no folder."""
    place = folder.one().place
    assert place is not None and place.project and place.relative
    assert place.folder == str(folder.path)
    named = folder.one(name="crm-eu").place
    assert named is not None and not named.relative
    folder.write("models/users.yml", "query: SELECT 1 AS id FROM csv.`./rows.csv`\n")
    found = folder.one(name="crm-eu")
    assert found.place is not None and found.place.relative
    assert found.source.folder == str(folder.path)
    Path("rows.csv").write_text("")  # of before: where Penstock is started
    found = folder.one(name="crm-eu")
    assert found.source.folder is None and "rows.csv" in found.warnings[0]


def test_a_project_of_another_place_is_refused_with_ways_out_that_run(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_HOME", raising=False)
    home = Home(tmp_path / "home")
    store = open_store(home.state_url(None))
    lease = store.acquire("crm.mail", this_holder("r1", "2026-11-20T10:00:00Z"), 60.0)
    store_place(SettledPlace(folder.one()), store, lease, [])
    store.new_epoch(lease, 0)
    store.release(lease)
    settle_place(folder.one(), store, home)
    (tmp_path / "b").mkdir()
    other = Folder(tmp_path / "b")
    monkeypatch.chdir(other.path)
    with pytest.raises(ConfigError) as refused:
        settle_place(other.one(), store, home)
    hint = str(refused.value.hint)
    assert refused.value.code == "config.other_place"
    assert f"in {other.path}: `penstock state adopt crm.mail --place --home {home.path}`" in hint
    assert "penstock: { id: crm.mail }" in hint and "give it another `--name`" in hint
    with open_known("crm.mail", home) as known:
        states.adopt_place(known)
    settle_place(other.one(), store, home)
    store.close()
