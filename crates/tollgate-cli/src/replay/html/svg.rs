//! Draws shapes as SVG inside a page. plotters computes the layout.
//!
//! The SVG backend of plotters writes fixed colours. This module's backend instead treats each
//! colour as a style class, so that the page's style can choose different colours for a light
//! screen, a dark screen and paper.

use std::convert::Infallible;

use plotters::style::RGBColor;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use super::markup::Markup;

/// The colours, which stand for style classes.
pub(crate) const INK: RGBColor = RGBColor(0, 0, 0);
pub(crate) const GRID: RGBColor = RGBColor(1, 0, 0);
pub(crate) const PASSED: RGBColor = RGBColor(2, 0, 0);
pub(crate) const DENIED: RGBColor = RGBColor(3, 0, 0);

/// The height of text.
pub(crate) const TEXT: u32 = 12;

/// A picture that is being drawn.
pub(crate) struct Canvas<'m> {
    markup: &'m mut Markup,
    size: (u32, u32),
}

impl<'m> Canvas<'m> {
    /// `size` is the width and the height.
    pub(crate) fn new(markup: &'m mut Markup, size: (u32, u32)) -> Self {
        Self { markup, size }
    }
}

/// Returns the style class of a shape.
fn class(color: BackendColor, is_filled: bool) -> &'static str {
    match (color.rgb.0, is_filled) {
        (1, _) => "grid",
        (2, true) => "passed",
        (3, true) => "denied",
        (_, true) => "ink",
        (_, false) => "line",
    }
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn {
        let (x, y) = point;
        let class = class(color, true);
        self.markup
            .add("<rect x=\"{}\" y=\"{}\" width=\"1\" height=\"1\" class=\"{}\"/>\n", &[&x, &y, &class]);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        if style.color().alpha > 0.0 {
            self.markup.add(
                "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n",
                &[&from.0, &from.1, &to.0, &to.1, &class(style.color(), false)],
            );
        }
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let (width, height) = (bottom_right.0 - upper_left.0, bottom_right.1 - upper_left.1);
        if style.color().alpha > 0.0 && width > 0 && height > 0 {
            self.markup.add(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"/>\n",
                &[&upper_left.0, &upper_left.1, &width, &height, &class(style.color(), fill)],
            );
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, pos: BackendCoord) -> Drawn {
        let anchor = style.anchor();
        // The distance from the text's position down to its baseline.
        let below = match anchor.v_pos {
            VPos::Top => TEXT,
            VPos::Center => TEXT / 3,
            VPos::Bottom => 0,
        };
        let y = i64::from(pos.1) + i64::from(below);
        let markup = match anchor.h_pos {
            HPos::Left => "<text x=\"{}\" y=\"{}\">{}</text>\n",
            HPos::Center => "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            HPos::Right => "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
        };
        self.markup.add(markup, &[&pos.0, &y, &text]);
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        _: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let characters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        Ok((characters.saturating_mul(TEXT * 3 / 5), TEXT))
    }
}
