"""A machine without Java, made of this one."""

from pathlib import Path


def without_java(folder: Path) -> dict[str, str]:
    """The environment: all that PATH has here, but java and (as on a small image) ps."""
    folder.mkdir()
    for tool in (*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()):
        if not tool.name.startswith(("java", "ps")) and not (folder / tool.name).is_symlink():
            (folder / tool.name).symlink_to(tool)
    return {"PATH": str(folder), "JAVA_HOME": ""}
