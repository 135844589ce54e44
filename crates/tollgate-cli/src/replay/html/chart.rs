//! Draws a page's pictures. Each column shows the passed requests, with the denied requests stacked
//! on top.

use plotters::chart::ChartBuilder;
use plotters::drawing::{DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Rectangle;
use plotters::style::{Color, IntoFont, RGBColor};

use super::markup::Markup;
use super::svg::{Canvas, DENIED, GRID, INK, PASSED, TEXT};

/// The sizes of a picture: one for a wide screen, and one for a phone. Each picture is drawn in
/// both sizes, and the page's style shows only one of them.
const SIZES: [(u32, u32, &str); 2] = [
    (720, 260, "<svg class=\"wide\" role=\"img\" viewBox=\"0 0 720 260\">\n"),
    (340, 230, "<svg class=\"narrow\" role=\"img\" viewBox=\"0 0 340 230\">\n"),
];

const MARGIN: i32 = 8;

/// One column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// The text below the column, if there is room for it.
    pub(crate) label: String,
    pub(crate) passed: u64,
    pub(crate) denied: u64,
}

/// Draws columns. Screen readers read `title`.
pub(crate) fn columns(columns: &[Column], title: &'static str, markup: &mut Markup) {
    for (width, height, open) in SIZES {
        markup.raw(open).add("<title>{}</title>\n", &[&title]);
        let mut picture = Markup::default();
        // A picture that cannot be laid out is omitted, because a table in the page shows the same
        // counts.
        if draw(columns, (width, height), &mut picture).is_ok() {
            markup.part(&picture);
        }
        markup.raw("</svg>\n");
    }
}

type PictureDrawn = Result<(), DrawingAreaErrorKind<std::convert::Infallible>>;

fn draw(columns: &[Column], size: (u32, u32), markup: &mut Markup) -> PictureDrawn {
    let count = columns.len() as f64;
    let tallest = columns.iter().map(|column| column.passed + column.denied).max().unwrap_or(0).max(1);
    let most = tallest as f64 * 1.04;
    let area = Canvas::new(markup, size).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin_top(MARGIN)
        .margin_right(MARGIN)
        .x_label_area_size(TEXT * 2)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..count.max(1.0), 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(5)
        .light_line_style(GRID.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(GRID)
        .y_label_style(("sans-serif", TEXT).into_font().color(&INK))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    // A count above zero is always visible.
    let height = |count: u64| if count == 0 { 0.0 } else { (count as f64).max(most / 150.0) };
    let gap = if columns.len() > 40 { 0.06 } else { 0.12 };
    for (index, column) in columns.iter().enumerate() {
        let (left, right) = (index as f64 + gap, index as f64 + 1.0 - gap);
        let middle = height(column.passed);
        let parts = [(0.0, middle, PASSED), (middle, middle + height(column.denied), DENIED)];
        let parts = parts.into_iter().filter(|(from, to, _)| from < to);
        let bar = |(from, to, color): (f64, f64, RGBColor)| {
            Rectangle::new([(left, from), (right, to)], color.filled())
        };
        chart.draw_series(parts.map(bar))?;
    }
    write_labels(columns, &chart.plotting_area().get_pixel_range(), &area)
}

/// Writes as many labels as there is room for.
fn write_labels(
    columns: &[Column],
    range: &(std::ops::Range<i32>, std::ops::Range<i32>),
    area: &plotters::drawing::DrawingArea<Canvas<'_>, plotters::coord::Shift>,
) -> PictureDrawn {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let (left, right) = (range.0.start, range.0.end);
    let count = i32::try_from(columns.len()).unwrap_or(i32::MAX).max(1);
    // A character is about 7 pixels wide.
    let longest = columns.iter().map(|column| column.label.chars().count()).max().unwrap_or(0);
    let fit = (usize::try_from(right - left).unwrap_or(0) / (longest * 7 + 10)).max(1);
    let step = columns.len().div_ceil(fit).max(1);
    let style = ("sans-serif", TEXT).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    for (index, column) in columns.iter().enumerate().step_by(step) {
        let index = i32::try_from(index).unwrap_or(0);
        let middle = left + (right - left) * (2 * index + 1) / (2 * count);
        // The label of the last column must not extend beyond the edge of the picture.
        let half = i32::try_from(column.label.chars().count()).unwrap_or(0) * 7 / 2;
        let middle = middle.min(right + MARGIN - half);
        area.draw_text(&column.label, &style, (middle, range.1.end + 6))?;
    }
    Ok(())
}

/// Formats a count for an axis: `1.5k`.
fn short(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scaled, unit) = match units.iter().find(|(unit, _)| value >= *unit) {
        Some((size, name)) => (value / size, *name),
        None => (value, ""),
    };
    let text = format!("{scaled:.1}");
    format!("{}{unit}", text.trim_end_matches(".0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_short() {
        for (value, text) in [(0.0, "0"), (2.5, "2.5"), (950.0, "950"), (1500.0, "1.5k"), (2e9, "2G")] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn each_column_has_its_parts_and_nothing_is_drawn_of_nothing() {
        let column = |passed, denied| Column { label: "<x>".into(), passed, denied };
        let mut markup = Markup::default();
        columns(&[column(5, 0), column(0, 3), column(2, 2), column(0, 0)], "a title", &mut markup);
        let drawn = markup.into_string();
        assert_eq!((drawn.matches("\"passed\"").count(), drawn.matches("\"denied\"").count()), (4, 4));
        assert!(drawn.contains("&lt;x&gt;") && !drawn.contains("<x>"), "{drawn}");
        let mut markup = Markup::default();
        columns(&[], "nothing", &mut markup);
        assert!(!markup.into_string().contains("NaN"));
    }
}
