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

    /// Closes the element of a shape.
    fn end(&mut self, color: BackendColor, is_filled: bool) {
        let class = match (color.rgb.0, is_filled) {
            (1, _) => "grid",
            (2, true) => "passed",
            (3, true) => "denied",
            (_, true) => "ink",
            (_, false) => "line",
        };
        self.markup.raw(" class=\"").raw(class).raw("\"/>\n");
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
        self.markup.raw("<rect x=\"").number(point.0).raw("\" y=\"").number(point.1);
        self.markup.raw("\" width=\"1\" height=\"1\"");
        self.end(color, true);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        if style.color().alpha > 0.0 {
            self.markup.raw("<line x1=\"").number(from.0).raw("\" y1=\"").number(from.1);
            self.markup.raw("\" x2=\"").number(to.0).raw("\" y2=\"").number(to.1).raw("\"");
            self.end(style.color(), false);
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
            self.markup.raw("<rect x=\"").number(upper_left.0).raw("\" y=\"").number(upper_left.1);
            self.markup.raw("\" width=\"").number(width).raw("\" height=\"").number(height).raw("\"");
            self.end(style.color(), fill);
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        let mut last = None;
        for point in path {
            if let Some(from) = last.replace(point) {
                self.draw_line(from, point, style)?;
            }
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
        self.markup.raw("<text x=\"").number(pos.0).raw("\" y=\"").number(y);
        self.markup.raw(match anchor.h_pos {
            HPos::Left => "\">",
            HPos::Center => "\" text-anchor=\"middle\">",
            HPos::Right => "\" text-anchor=\"end\">",
        });
        self.markup.text(text).raw("</text>\n");
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
