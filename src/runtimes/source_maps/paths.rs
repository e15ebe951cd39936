//! Where a script's map is, and the paths of its sources.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Where a script says that its map is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapPlace {
    /// The path of a file.
    File(String),
    /// It is in the script itself.
    Inside(Vec<u8>),
    /// On a server, or in a form that is not read.
    Elsewhere,
}

/// The comment with the map's address, behind `//# ` or an older form.
const COMMENT: &str = "sourceMappingURL=";

/// Returns what the last such comment of a script says; `None` if there is none. `path`: the
/// script's own.
pub fn map_of(script: &str, path: &str) -> Option<MapPlace> {
    let mut end = script.len();
    while let Some(at) = script[..end].rfind(COMMENT) {
        let before = script[..at].trim_end_matches([' ', '\t']);
        let url = script[at + COMMENT.len()..].split_whitespace().next().unwrap_or("");
        let is_comment = ["//#", "//@", "/*#", "/*@"].iter().any(|begin| before.ends_with(begin));
        // In a string it is code that writes such a comment.
        if is_comment && !url.is_empty() && !url.contains(['"', '\'', '`']) {
            return Some(place(url.trim_end_matches("*/"), path));
        }
        end = at;
    }
    None
}

fn place(url: &str, path: &str) -> MapPlace {
    if let Some(data) = url.strip_prefix("data:") {
        let (kind, text) = data.split_once(',').unwrap_or((data, ""));
        let decoded = kind.ends_with(";base64").then(|| STANDARD.decode(text).ok()).flatten();
        return decoded.map_or(MapPlace::Elsewhere, MapPlace::Inside);
    }
    match resolve(path, "", url) {
        found if found.starts_with('/') => MapPlace::File(found),
        _ => MapPlace::Elsewhere,
    }
}

/// Returns the path of a source: `root` and `source` are of a map in the file at `place`. An
/// address that is no file's stays as it is: `webpack://shop/src/a.ts`.
pub fn resolve(place: &str, root: &str, source: &str) -> String {
    let joined = match root {
        "" => Cow::Borrowed(source),
        _ if source.starts_with('/') || has_scheme(source) => Cow::Borrowed(source),
        root => Cow::Owned(format!("{}/{source}", root.trim_end_matches('/'))),
    };
    let path: Cow<'_, str> = match joined.strip_prefix("file://") {
        Some(path) => Cow::Owned(unescaped(path)),
        None if has_scheme(&joined) => return joined.into_owned(),
        None => joined,
    };
    let folder = place.rsplit_once('/').map_or("", |(folder, _)| folder);
    let begin = if path.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in begin.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns whether it is an address with a scheme: `https://`, `webpack://`.
fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    })
}

/// Returns an address's path with its `%20` and the like replaced.
pub fn unescaped(path: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%');
        let code = digits
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_comment_says_where_the_map_is() {
        let file = |path: &str| Some(MapPlace::File(path.to_owned()));
        for (script, expected) in [
            ("f();\n//# sourceMappingURL=a.js.map\n", file("/srv/dist/a.js.map")),
            ("//@ sourceMappingURL=../maps/a.map", file("/srv/maps/a.map")),
            ("/*# sourceMappingURL=/m/a.map */", file("/m/a.map")),
            ("/*# sourceMappingURL=/m/a.map*/", file("/m/a.map")),
            ("//# sourceMappingURL=file:///m/a%20b.map", file("/m/a b.map")),
            (
                "//# sourceMappingURL=old.map\nf()\n//# sourceMappingURL=new.map",
                file("/srv/dist/new.map"),
            ),
            ("x = '//# sourceMappingURL=' + url;", None),
            (
                "//# sourceMappingURL=a.map\nx = \"//# sourceMappingURL=\" + url;",
                file("/srv/dist/a.map"),
            ),
            ("let sourceMappingURL=3", None),
            ("//# sourceMappingURL=", None),
            ("", None),
            ("//# sourceMappingURL=https://x.org/a.map", Some(MapPlace::Elsewhere)),
            ("//# sourceMappingURL=data:application/json,{}", Some(MapPlace::Elsewhere)),
            ("//# sourceMappingURL=data:application/json;base64,!", Some(MapPlace::Elsewhere)),
            (
                "//# sourceMappingURL=data:application/json;charset=utf-8;base64,e30=",
                Some(MapPlace::Inside(b"{}".to_vec())),
            ),
        ] {
            assert_eq!(map_of(script, "/srv/dist/a.js"), expected, "{script}");
        }
    }

    #[test]
    fn sources_are_resolved_against_their_map() {
        for (root, source, expected) in [
            ("", "../src/a.ts", "/srv/src/a.ts"),
            ("", "./a.ts", "/srv/dist/a.ts"),
            ("", "/src/a.ts", "/src/a.ts"),
            ("", "../../../../a.ts", "/a.ts"),
            ("../src", "a.ts", "/srv/src/a.ts"),
            ("/src/", "a/b.ts", "/src/a/b.ts"),
            ("/src", "/x/b.ts", "/x/b.ts"),
            ("", "file:///x/a%20b.ts", "/x/a b.ts"),
            ("", "webpack://shop/./src/a.ts", "webpack://shop/./src/a.ts"),
            ("webpack://shop", "src/a.ts", "webpack://shop/src/a.ts"),
            ("../src", "https://x.org/a.ts", "https://x.org/a.ts"),
            ("", "", "/srv/dist"),
        ] {
            assert_eq!(resolve("/srv/dist/a.js.map", root, source), expected, "{root} {source}");
        }
    }
}
