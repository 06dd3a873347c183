"""Exported models as tools/export.py writes them, without its comparison with a framework."""

from dataclasses import replace

from zoo.export import assembly
from zoo.run import trained


def export(checkpoint, path, whole=False, change=lambda metadata: metadata):
    """Write an exported model; return its path.

    Args:
        checkpoint: its folder.
        path: of the file.
        whole: whether it takes pixels as they are, and gives what a program wants.
        change: of its metadata, for a file that is not what it says.
    """
    read = trained.read(str(checkpoint), "torch", "cpu", (), False)
    shape = read.fields[0].shape
    model = assembly.build(read, shape, whole)
    facts = dict(protocol="none", precision="fp32", opset=model.opset_import[0].version, max_difference=0.0)
    assembly.attach(model, change(assembly.describe(read, shape, whole, **facts)))
    path.write_bytes(model.SerializeToString())
    return str(path)


def with_input(metadata, **changes):
    """Return metadata that describe another input."""
    return replace(metadata, input=replace(metadata.input, **changes))
