//! Path templates such as `/users/{id}`. All paths that match a template are counted as one.
//!
//! A limit has few templates, so they are compared one after the other, segment by segment. A
//! router would be an additional dependency for every user of path keys.

use super::canonical::{canonical_path, encoded, is_plain};
use super::spelling::without_case;
use crate::text::error::TextError;
use crate::text::printable::printable;
use std::fmt;
use std::str::FromStr;

/// The key of all paths that match no template. No path or template can equal this text.
const UNMATCHED: &str = "(other)";

/// A path template, parsed from text: `/users/{id}/orders`.
///
/// A template begins with a slash and consists of segments of three kinds. Plain text is compared
/// with the path in its [canonical form](crate::RequestHead::path). A name in braces matches any
/// text within one segment. A name after an asterisk, as in `/static/{*file}`, matches everything
/// that follows: `/static` and `/static/` as well as `/static/a/b.css`. Names have no effect on
/// matching. The characters of other patterns, such as `*`, `:id` and `$id`, are refused; `%2A`,
/// `%3A` and `%24` are the characters themselves.
///
/// ```
/// use tollgate_http::settings::PathTemplate;
///
/// let template: PathTemplate = "/users/{id}".parse()?;
/// assert_eq!(template.as_str(), "/users/{id}");
///
/// let refused = "/users/id}".parse::<PathTemplate>().unwrap_err().to_string();
/// assert_eq!(
///     refused,
///     "invalid path template `/users/id}` at segment 2, `id}`: expected a name in braces as all \
///      of the segment, as in `/users/{id}`"
/// );
/// # Ok::<(), tollgate_http::settings::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathTemplate {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Segment {
    /// Text in canonical form, and in the form that ignores spelling and case.
    Text {
        exact: Box<[u8]>,
        loose: Box<[u8]>,
    },
    Any,
    Rest,
}

impl PathTemplate {
    /// Returns the text of the template.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether this template matches a path in canonical form.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let Some(path) = path.strip_prefix(b"/") else { return false };
        let mut found = path.split(|&byte| byte == b'/');
        for segment in &self.segments {
            match (segment, found.next()) {
                (Segment::Rest, _) => return true,
                (Segment::Text { exact, .. }, Some(found)) if **exact == *found => {}
                (Segment::Any, Some(found)) if !found.is_empty() => {}
                _ => return false,
            }
        }
        found.next().is_none()
    }

    /// Returns whether some server may treat a path as one that this template matches. The path is
    /// in the form of [`without_case`].
    pub(crate) fn may_match(&self, path: &[u8]) -> bool {
        let Some(path) = path.strip_prefix(b"/") else { return false };
        let mut found = path.split(|&byte| byte == b'/').filter(|found| !found.is_empty());
        for segment in &self.segments {
            match segment {
                Segment::Rest => return true,
                // In this form, `%2F` separates two segments, and a slash at the end begins no
                // further segment.
                Segment::Text { loose, .. }
                    if loose
                        .split(|&byte| byte == b'/')
                        .filter(|part| !part.is_empty())
                        .all(|part| found.next() == Some(part)) => {}
                Segment::Any if found.next().is_some() => {}
                _ => return false,
            }
        }
        found.next().is_none()
    }

    /// Returns whether this template matches every path that `other` matches.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let mut others = other.segments.iter();
        for segment in &self.segments {
            match (segment, others.next()) {
                (Segment::Rest, _) => return true,
                (Segment::Text { exact, .. }, Some(Segment::Text { exact: other, .. })) if exact == other => {
                }
                (Segment::Any, Some(Segment::Any)) => {}
                (Segment::Any, Some(Segment::Text { exact, .. })) if !exact.is_empty() => {}
                _ => return false,
            }
        }
        others.next().is_none()
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for PathTemplate {
    type Err = TextError;

    /// # Errors
    ///
    /// Returns a [`TextError`] that names the template, the invalid segment, and the expected form.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let shown = printable(text.as_bytes());
        let Some(path) = text.strip_prefix('/') else {
            return Err(TextError::new(format!(
                "invalid path template `{shown}`, which does not begin with `/`: expected a path such as \
                 `/users/{{id}}`"
            )));
        };
        let count = path.split('/').count();
        let mut segments = Vec::with_capacity(count);
        let mut before = String::from("/");
        for (number, segment) in (1..).zip(path.split('/')) {
            segments.push(parse(segment, &before, number == count).map_err(|expected| {
                let segment = printable(segment.as_bytes());
                TextError::new(format!(
                    "invalid path template `{shown}` at segment {number}, `{segment}`: expected {expected}"
                ))
            })?);
            before = format!("{before}{segment}/");
        }
        Ok(Self { text: text.to_owned(), segments })
    }
}

/// Parses a segment. Returns an error that describes the expected form if the segment is not valid.
/// `before` is the text of the template before the segment.
fn parse(segment: &str, before: &str, is_last: bool) -> Result<Segment, String> {
    if let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        let (name, is_rest) = name.strip_prefix('*').map_or((name, false), |name| (name, true));
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        {
            return Err(
                "a name of letters, digits, `-` and `_` between the braces, as in `{id}` for one segment or \
                 `{*path}` for all that follows"
                    .to_owned(),
            );
        }
        return match (is_rest, is_last) {
            (true, false) => Err("it at the end, because it stands for all that follows".to_owned()),
            (true, true) => Ok(Segment::Rest),
            (false, _) => Ok(Segment::Any),
        };
    }
    if segment.contains(['{', '}']) {
        return Err("a name in braces as all of the segment, as in `/users/{id}`".to_owned());
    }
    if segment.is_empty() && !is_last {
        return Err("one slash between segments".to_owned());
    }
    if segment == "." || segment == ".." {
        return Err("no `.` and no `..`, which no canonical path has".to_owned());
    }
    if let Some(expected) = instead_of_pattern(segment, before, is_last) {
        return Err(expected);
    }
    let form = canonical_path(segment.as_bytes());
    let form = &form[1..];
    if form != segment.as_bytes() {
        return Err(format!("`{}`, which is its canonical form", printable(form)));
    }
    let exact = unescaped(form);
    let loose = without_case(&exact)[1..].into();
    Ok(Segment::Text { exact: exact[1..].into(), loose })
}

/// Returns the expected form of a segment that contains the pattern of another tool.
fn instead_of_pattern(segment: &str, before: &str, is_last: bool) -> Option<String> {
    const ID: &str = "`{id}` for any text of one segment";
    let before = printable(before.as_bytes());
    let is_all = ["*", "**", ".*", ".+", "(.*)", "(.+)", "..."].contains(&segment);
    Some(if is_all && is_last {
        format!("`{before}{{*path}}` for all that follows, or `{before}{{name}}` for one segment")
    } else if segment.contains('*') || segment.contains(".+") || segment == "..." {
        "no pattern but a name in braces as all of a segment, `{name}` for one segment, or `{*path}` at the end for \
         all that follows (`%2A` is the character `*`)"
            .to_owned()
    } else if segment.len() > 1 && segment.starts_with(':') {
        format!("{ID} (`%3A` is the character `:`)")
    } else if segment.len() > 1 && segment.starts_with('$') {
        format!("{ID} (`%24` is the character `$`)")
    } else if segment.ends_with('$') {
        "no `$` at the end, because a template is for the whole path (`%24` is the character `$`)".to_owned()
    } else if segment.contains('|') || segment.ends_with(',') && !is_last {
        "one path; write `or` and the other path behind it, or `{name}` for any text of one segment"
            .to_owned()
    } else if segment.contains(['<', '>', '[', ']']) {
        ID.to_owned()
    } else if segment.contains(['^', '\\']) {
        format!("no regular expression: {ID}, or `{{*path}}` at the end for all that follows")
    } else if segment.contains(['?', '#']) {
        let mark = if segment.contains('?') { '?' } else { '#' };
        format!("only the path before the `{mark}`, because no path contains what follows")
    } else {
        return None;
    })
}

/// Replaces the encodings of characters that a path may contain unencoded: `%24` by `$`. The result
/// begins with a slash.
fn unescaped(segment: &[u8]) -> Vec<u8> {
    let mut out = vec![b'/'];
    let mut rest = segment;
    while let Some((&byte, after)) = rest.split_first() {
        match encoded(after).filter(|&meant| byte == b'%' && is_plain(meant)) {
            Some(meant) => {
                out.push(meant);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

/// Path templates. The first template that matches a path counts.
///
/// ```
/// use tollgate_http::program::PathTemplates;
///
/// let templates = PathTemplates::new(["/users/me", "/users/{id}", "/static/{*file}"])?;
/// assert_eq!(templates.of(b"/users/7"), "/users/{id}");
/// assert_eq!(templates.of(b"/users/me"), "/users/me");
/// assert_eq!(templates.of(b"/static/a/b.css"), "/static/{*file}");
/// // All paths that match no template are one.
/// assert_eq!(templates.of(b"/wp-login.php"), templates.of(b"/users/7/orders"));
/// # Ok::<(), tollgate_http::settings::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplates {
    templates: Vec<PathTemplate>,
}

impl PathTemplates {
    /// Parses templates.
    ///
    /// # Errors
    ///
    /// Returns an error if the list is empty, if a text is not a template, or if an earlier
    /// template matches all paths of a later one.
    pub fn new<T: AsRef<str>>(templates: impl IntoIterator<Item = T>) -> Result<Self, TextError> {
        let mut parsed: Vec<PathTemplate> = Vec::new();
        for text in templates {
            let template: PathTemplate = text.as_ref().parse()?;
            if let Some(before) = parsed.iter().find(|before| before.covers(&template)) {
                return Err(TextError::new(format!(
                    "path template `{template}` is never reached, because `{before}` before it matches all of \
                     its paths: expected the more specific one first; swap them, or leave one out"
                )));
            }
            parsed.push(template);
        }
        if parsed.is_empty() {
            return Err(TextError::new(
                "0 path templates, so all paths would be one: expected at least 1, such as `/users/{id}`",
            ));
        }
        Ok(Self { templates: parsed })
    }

    /// Returns the text of the template that matches a path, or `(other)`. The path may have any
    /// form. If no template matches the [canonical](canonical_path) form, a template counts that
    /// may match the path on some server: `/Login;x` is counted as `/login`.
    pub fn of(&self, path: &[u8]) -> &str {
        let canonical = canonical_path(path);
        let matching = self.templates.iter().find(|it| it.matches(&canonical));
        let matching = matching.or_else(|| {
            let path = without_case(&canonical);
            self.templates.iter().find(|it| it.may_match(&path))
        });
        matching.map_or(UNMATCHED, PathTemplate::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_takes_its_paths_and_no_others() {
        let table = [
            ("/users/{id}", "/users/7", true),
            ("/users/{id}", "/users/%C3%A9", true),
            ("/users/{id}", "//users/./%37", true),
            ("/users/{id}", "/users/", false),
            ("/users/{id}", "/users", false),
            ("/users/{id}", "/users/7/", true),
            ("/users/{id}", "/users/7;x", true),
            ("/users/{id}", "/users%2F7", true),
            ("/users/{id}", "/users/7/orders", false),
            ("/users/{id}", "/Users/7", true),
            ("/users/{id}", "*", false),
            ("/users/", "/users/", true),
            ("/users/", "/users", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/{*rest}", "/a/b/", true),
            ("/{*rest}", "/", true),
            ("/a/{x}/{*rest}", "/a/b/c/d", true),
            ("/a/{x}/{*rest}", "/a/b", true),
            ("/a/{x}/{*rest}", "/a/", false),
            ("/a/{*rest}", "/a", true),
            ("/a/{*rest}", "/ab", false),
            ("/v1/keys:rotate", "/v1/keys:rotate", true),
            ("/v1/keys:rotate", "/v1/keys%3Arotate", true),
            ("/%24batch", "/$batch", true),
            ("/%24batch", "/%24batch", true),
        ];
        for (template, path, matches) in table {
            let templates = PathTemplates::new([template]).unwrap();
            let expected = if matches { template } else { UNMATCHED };
            assert_eq!(templates.of(path.as_bytes()), expected, "{template} {path}");
        }
    }

    #[test]
    fn a_bad_template_is_named_with_the_place_and_the_fix() {
        let table = [
            (&["users"][..], "`users`, which does not begin with `/`: expected a path such as `/users/{id}`"),
            (&["/a//b"], "at segment 2, ``: expected one slash between segments"),
            (&["/a/{}"], "at segment 2, `{}`: expected a name of letters"),
            (&["/a/{b c}"], "at segment 2, `{b c}`: expected a name of letters"),
            (&["/{*rest}/a"], "at segment 1, `{*rest}`: expected it at the end"),
            (&["/a{id}"], "at segment 1, `a{id}`: expected a name in braces as all of the segment"),
            (&["/a/../b"], "at segment 2, `..`: expected no `.` and no `..`"),
            (&["/%6cogin"], "at segment 1, `%6cogin`: expected `login`, which is its canonical form"),
            (&["/a?b"], "at segment 1, `a?b`: expected only the path before the `?`"),
            (&["/a/*"], "at segment 2, `*`: expected `/a/{*path}` for all that follows"),
            (&["/*/a"], "at segment 1, `*`: expected no pattern but a name in braces"),
            (&["/:id"], "at segment 1, `:id`: expected `{id}`"),
            (&["/\u{1b}"], "at segment 1, `\\u{1b}`: expected `%1B`"),
            (&["/users/{id}", "/users/me"], "`/users/me` is never reached, because `/users/{id}` before it"),
            (&["/a", "/a"], "`/a` is never reached"),
            (&["/{*rest}", "/a/{b}"], "`/a/{b}` is never reached"),
            (&["/{*r}", "/"], "`/` is never reached"),
            (&[], "0 path templates"),
        ];
        for (templates, part) in table {
            let message = PathTemplates::new(templates).expect_err(part).to_string();
            assert!(message.contains(part), "{message}");
        }
        for good in [&["/users/me", "/users/{id}"][..], &["/a/", "/{x}/{y}"], &["/{x}", "/"], &["/", "/{*r}"]]
        {
            assert!(PathTemplates::new(good).is_ok(), "{good:?}");
        }
    }
}
