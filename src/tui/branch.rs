//! What the rows of trees have in common: the indentation before a name, and lines of small rows.

use super::text::{Pen, cut_end};
use super::theme::Theme;
use crate::app::rows::{Fold, What};

/// Minimum cells of a name, whatever its indentation.
const NAME_LEAST: usize = 16;

/// Writes the indentation of a name in a column of `cells`, and whether the row is open. Returns
/// the cells left for the name.
pub fn put_indent(
    pen: &mut Pen<'_>,
    (depth, chained): (u16, bool),
    fold: Fold,
    cells: usize,
    theme: &Theme,
) -> usize {
    pen.space(1);
    // Indentation stops where the name would have no room.
    let indent = (usize::from(depth) * 2).min(cells.saturating_sub(NAME_LEAST + 2));
    let glyphs = theme.glyphs;
    if chained && indent > 0 {
        pen.space(indent - 1).put(glyphs.hangs, theme.dim());
    } else {
        pen.space(indent);
    }
    let mark = match fold {
        Fold::Leaf => "  ".to_string(),
        Fold::Open => format!("{} ", glyphs.open),
        Fold::Closed => format!("{} ", glyphs.closed),
    };
    pen.put(&mark, theme.dim());
    cells.saturating_sub(indent + 2)
}

/// Writes a line that stands for `count` small rows. `below`: what they are below.
pub fn put_small(
    pen: &mut Pen<'_>,
    what: What,
    count: u32,
    below: &str,
    room: usize,
    theme: &Theme,
) {
    let what = if what == What::SmallGroups { "group" } else { "row" };
    let plural = if count == 1 { "" } else { "s" };
    let text = format!("+ {count} {what}{plural} below {below}");
    pen.put_left(&cut_end(&text, room, theme.glyphs.cut), room, theme.dim());
}
