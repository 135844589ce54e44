//! The ratios as bars, with a panel for each workload, a row for each subject, and a bar for each
//! number of threads.
//!
//! A bar begins at governor, and the scale is logarithmic: twice as fast is as long to the left as
//! twice as slow to the right. Texts are drawn as text, in the reader's font, on a white
//! background, so that they are readable on a dark page.

use super::shown::{Cell, SUBJECTS, Shown, THREADS, is_default};
use crate::subjects::{BASE, OWN};
use crate::workload::Workload;
use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

const SIZE: (u32, u32) = (960, 780);
const HEAD: u32 = 72;
const FOOT: u32 = 62;
const MARGIN: u32 = 14;
/// The width of the names, left of the first panels.
const NAMES: u32 = 176;
const COLUMNS: usize = 3;

const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(31, 35, 40);
const FAINT: RGBColor = RGBColor(216, 222, 228);

/// The colours for one thread and for two threads, which colour-blind readers can distinguish.
type Pair = [RGBColor; THREADS.len()];
const OURS: Pair = [RGBColor(9, 84, 164), RGBColor(128, 180, 235)];
const OTHERS: Pair = [RGBColor(176, 92, 8), RGBColor(240, 184, 118)];
const NO_LIMITER: Pair = [RGBColor(118, 124, 130), RGBColor(190, 196, 202)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub fn svg(shown: &Shown) -> Result<String, String> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    drawn(shown, &root).map_err(|why| format!("the picture: {why}"))?;
    drop(root);
    Ok(text)
}

fn drawn<'a>(shown: &Shown, root: &Area<'a>) -> Result<(), Box<dyn std::error::Error + 'a>> {
    root.fill(&WHITE)?;
    head(root)?;
    foot(shown, root)?;
    let ends = ends(shown);
    let inner = root.margin(HEAD, FOOT, MARGIN, MARGIN);
    let (width, height) = inner.dim_in_pixel();
    let each = (width - NAMES) / COLUMNS as u32;
    let columns: Vec<u32> = (1..COLUMNS as u32).map(|column| NAMES + column * each).collect();
    let areas = inner.split_by_breakpoints(columns, vec![height / 2]);
    let drawn = shown.workloads.iter().filter(|workload| workload.is_drawn);
    for (place, (area, &workload)) in areas.iter().zip(drawn).enumerate() {
        let names = if place % COLUMNS == 0 { NAMES } else { 0 };
        let (across, down) = draw(shown, workload, area, names, ends)?;
        let centre = Pos::new(HPos::Center, VPos::Center);
        let above = (i32::midpoint(across.start, across.end), down.start - 14);
        root.draw(&Text::new(workload.heading(), above, style(17).pos(centre)))?;
    }
    root.present()?;
    Ok(())
}

/// Returns the subjects whose bars are drawn, from the top. governor has only one row, because its
/// bar has no length in any build.
fn subjects() -> Vec<&'static str> {
    let is_drawn = |subject: &&str| !is_default(subject) || !subject.starts_with(BASE);
    SUBJECTS.into_iter().filter(is_drawn).collect()
}

/// Returns the powers of two between which all shown ratios are.
fn ends(shown: &Shown) -> (i32, i32) {
    let cells = shown.cells().filter(|cell| cell.workload.is_drawn);
    let all =
        cells.flat_map(|cell| subjects().into_iter().filter_map(move |subject| shown.ratio(cell, subject)));
    let (least, most) = all.fold((0.5_f64, 2.0_f64), |(least, most), x| (least.min(x), most.max(x)));
    (least.log2().floor() as i32, most.log2().ceil() as i32)
}

/// Draws one panel, and returns the area of its bars in pixels.
fn draw<'a>(
    shown: &Shown,
    workload: Workload,
    area: &Area<'a>,
    names: u32,
    (least, most): (i32, i32),
) -> Result<(Range<i32>, Range<i32>), Box<dyn std::error::Error + 'a>> {
    // The height of a row is ten. Subjects are counted from the top, but the scale counts from the
    // bottom.
    let subjects = subjects();
    let rows = subjects.len();
    let middle = |place: usize| 10 * (rows - 1 - place) as i32 + 5;
    let name = |middle: &i32| subjects[rows - 1 - *middle as usize / 10].to_string();
    let (first, last) = (2_f64.powi(least), 2_f64.powi(most));
    let x =
        (first..last).log_scale().with_key_points((least..=most).map(|power| 2_f64.powi(power)).collect());
    let y = (0..10 * rows as i32).with_key_points((0..rows).map(middle).collect());
    let mut chart = ChartBuilder::on(area)
        .margin_top(34)
        .margin_left(16)
        .margin_right(12)
        .x_label_area_size(26)
        .y_label_area_size(names)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .axis_style(FAINT)
        .label_style((FONT, 15).into_font().color(&INK))
        .x_label_formatter(&power_of_two)
        .y_label_formatter(&name)
        .draw()?;
    for (place, subject) in subjects.iter().enumerate() {
        for (threads, colour) in THREADS.into_iter().zip(colours(subject)) {
            let ratio = shown.ratio(Cell { workload, threads }, subject).unwrap_or(1.0);
            let top = middle(place) + if threads == THREADS[0] { 4 } else { 0 };
            let bar = [(1.0, top), (ratio, top - 4)];
            chart.draw_series([Rectangle::new(bar, colour.filled())])?;
        }
    }
    chart.draw_series([PathElement::new([(1.0, 0), (1.0, 10 * rows as i32)], INK)])?;
    Ok(chart.plotting_area().get_pixel_range())
}

fn colours(subject: &str) -> Pair {
    match subject {
        _ if subject.starts_with('(') => NO_LIMITER,
        _ if subject.starts_with(OWN) => OURS,
        _ => OTHERS,
    }
}

/// `1/4`, `1/2`, `1`, `2`.
fn power_of_two(value: &f64) -> String {
    if *value < 1.0 { format!("1/{:.0}", 1.0 / value) } else { format!("{value:.0}") }
}

fn head<'a>(root: &Area<'a>) -> Result<(), Box<dyn std::error::Error + 'a>> {
    let title = format!("Time for a check, {BASE} = 1");
    line(root, &title, 22, 16)?;
    let mut left = MARGIN as i32;
    for (threads, shade) in [("1 thread", 0), ("2 threads", 1)] {
        for colour in [OURS, OTHERS, NO_LIMITER] {
            root.draw(&Rectangle::new([(left, 48), (left + 14, 60)], colour[shade].filled()))?;
            left += 16;
        }
        root.draw(&Text::new(threads, (left + 4, 54), style(15)))?;
        left += 84;
    }
    let reading = "to the left: faster; to the right: slower; twice as much at each line";
    root.draw(&Text::new(reading, (left + 8, 54), style(15)))?;
    Ok(())
}

fn foot<'a>(shown: &Shown, root: &Area<'a>) -> Result<(), Box<dyn std::error::Error + 'a>> {
    let top = (SIZE.1 - FOOT) as i32;
    line(root, &format!("{}; {}.", shown.machine(), shown.rounds()), 15, top + 12)?;
    if let Some(busy) = shown.stolen().or_else(|| shown.busy()) {
        line(root, &busy, 15, top + 34)?;
    }
    Ok(())
}

fn line<'a>(root: &Area<'a>, text: &str, size: u32, y: i32) -> Result<(), Box<dyn std::error::Error + 'a>> {
    root.draw(&Text::new(text.to_owned(), (MARGIN as i32, y), style(size)))?;
    Ok(())
}

fn style(size: u32) -> TextStyle<'static> {
    TextStyle::from((FONT, size).into_font()).color(&INK).pos(Pos::new(HPos::Left, VPos::Center))
}
