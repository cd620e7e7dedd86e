"""A batch from its sequence to the slots of the pool, for one layout: the whole of context parallelism in one drawing."""

from dsa_cp.tools.review.drawings.scene import Scene
from dsa_cp.tools.review.drawings.svg import Drawing, Sheet

_THREADS = 30


def journey_drawing(sheet: Sheet, scene: Scene) -> str:
    """Return the drawing of one layout."""
    name = scene.layout.name
    drawing = Drawing(sheet, f"journey-{name}", f"Eleven tokens of two requests on two ranks under {name}")
    kinds = {row: scene.token(row).kind for row in range(scene.batch.nnz)}
    drawing.label("the batch, in sequence order")
    before = drawing.strip(scene.sequence())
    for text, strip in (
        ("sharded: each rank in its local order", scene.local()),
        ("gathered: rank-major, padded to the fullest rank", scene.rank_major()),
        ("written: each row to its slot, batch.rank_major_loc", scene.pool(is_written=True)),
    ):
        drawing.y += _THREADS
        bend = drawing.y + 2
        drawing.label(text, "l h")
        after = drawing.strip(strip)
        drawing.threads(before, after, kinds, bend)
        before = after
    return drawing.render()
