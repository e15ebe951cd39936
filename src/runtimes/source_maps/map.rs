//! Reads a source map: which place of the script is which line of which source (ECMA-426).
//!
//! Mappings are numbers in base 64 of variable length, each the difference to the one before.
//! Names and contents of sources are not used.

use std::sync::Arc;

use serde::Deserialize;

use crate::model::vocabulary::text::{NAME_CAP, clean};
use crate::runtimes::source_maps::paths::resolve;

/// Maximum mappings of one map, and its sections.
const SEGMENTS_MAX: usize = 1 << 22;
const SECTIONS_MAX: usize = 1 << 12;
/// Maximum lines of a script.
const LINES_MAX: usize = 1 << 22;
/// Maximum sources of one map, and bytes of their paths.
const SOURCES_MAX: usize = 1 << 16;
const PATHS_MAX: usize = 16 << 20;
/// The source of a place that the compiler made up.
const NO_SOURCE: u32 = u32::MAX;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Json {
    version: u32,
    #[serde(default)]
    source_root: Option<String>,
    #[serde(default)]
    sources: Vec<Option<String>>,
    #[serde(default)]
    mappings: String,
    /// Maps of parts of the script, in the place of all above.
    #[serde(default)]
    sections: Option<Vec<Section>>,
}

#[derive(Deserialize)]
struct Section {
    offset: Offset,
    map: Box<Json>,
}

#[derive(Deserialize)]
struct Offset {
    line: u32,
    column: u32,
}

/// From a column of the script on: the source's number, and line and column there, all from 0 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    column: u32,
    source: u32,
    to: (u32, u32),
}

/// A place in a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InSource<'a> {
    /// The source's path.
    pub source: &'a Arc<str>,
    /// From 1 on.
    pub line: u32,
    /// From 0 on, in UTF-16 units.
    pub column: u32,
    /// How many columns of the script the asked place is behind the one that has this.
    pub behind: u32,
}

/// The map of one script.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceMap {
    sources: Vec<Arc<str>>,
    /// Bytes of their paths.
    paths: usize,
    /// By line of the script: where its segments end.
    ends: Vec<u32>,
    /// By line, then by column.
    segments: Vec<Segment>,
}

impl SourceMap {
    /// Reads a map in JSON. `place`: the path of the file it was in; paths are resolved against it.
    pub fn parse(json: &[u8], place: &str) -> Option<SourceMap> {
        // A line that keeps a browser from running it as a script.
        let json = match json.strip_prefix(b")]}") {
            Some(rest) => &rest[rest.iter().position(|byte| *byte == b'\n')?..],
            None => json,
        };
        let json: Json = serde_json::from_slice(json).ok()?;
        let mut map = SourceMap::default();
        match json.sections {
            None => map.add(&json, (0, 0), place)?,
            Some(sections) => {
                (json.version == 3 && sections.len() <= SECTIONS_MAX).then_some(())?;
                for Section { offset, map: part } in sections {
                    map.add(&part, (offset.line, offset.column), place)?;
                }
            }
        }
        map.segments.shrink_to_fit();
        Some(map)
    }

    /// Adds a map of the part of the script that begins at this line and column.
    fn add(&mut self, json: &Json, (line, column): (u32, u32), place: &str) -> Option<()> {
        (json.version == 3 && json.sections.is_none()).then_some(())?;
        let first = self.sources.len();
        (first + json.sources.len() <= SOURCES_MAX).then_some(())?;
        let root = json.source_root.as_deref().unwrap_or("");
        for source in &json.sources {
            let path = source.as_ref().map(|source| resolve(place, root, source));
            let path = clean(path.as_deref().unwrap_or(""), NAME_CAP);
            self.paths += path.len();
            (self.paths <= PATHS_MAX).then_some(())?;
            self.sources.push(path.into());
        }
        let count = self.sources.len();
        let (mut in_source, mut source_line, mut source_column) = (0i64, 0i64, 0i64);
        for (nth, text) in json.mappings.split(';').enumerate() {
            let at = line as usize + nth;
            (at < LINES_MAX && at + 1 >= self.ends.len()).then_some(())?;
            let before = self.segments.len();
            let mut generated = if nth == 0 { i64::from(column) } else { 0 };
            for segment in text.split(',').filter(|segment| !segment.is_empty()) {
                let (numbers, length) = numbers(segment)?;
                generated += numbers[0];
                let (mut source, mut to) = (NO_SOURCE, (0, 0));
                if length >= 4 {
                    in_source += numbers[1];
                    source_line += numbers[2];
                    source_column += numbers[3];
                    source = u32::try_from(first as i64 + in_source).ok()?;
                    ((source as usize) < count).then_some(())?;
                    // Lines alone are of use, too.
                    to = (
                        u32::try_from(source_line).ok()?,
                        u32::try_from(source_column).unwrap_or(0),
                    );
                }
                (self.segments.len() < SEGMENTS_MAX).then_some(())?;
                let column = u32::try_from(generated).ok()?;
                self.segments.push(Segment { column, source, to });
            }
            // Of a section that begins within a line, that line has segments already.
            self.ends.resize(at, before as u32);
            self.ends.push(self.segments.len() as u32);
            let of_line = &mut self.segments[before..];
            of_line.sort_by_key(|segment| segment.column);
            let begin = at.checked_sub(1).map_or(0, |above| self.ends[above]) as usize;
            let above = self.segments[begin..before].last().map_or(0, |last| last.column);
            // A section begins behind those before it.
            self.segments[before..].first().is_none_or(|it| it.column >= above).then_some(())?;
        }
        Some(())
    }

    /// Returns where a place in the script comes from: its line from 1 on, its column from 0 on, in
    /// UTF-16 units. `None` for code that is in no source.
    pub fn place(&self, line: u32, column: u32) -> Option<InSource<'_>> {
        let at = usize::try_from(line.checked_sub(1)?).ok()?;
        let end = *self.ends.get(at)? as usize;
        let begin = at.checked_sub(1).map_or(0, |above| self.ends[above]) as usize;
        let segments = self.segments.get(begin..end)?;
        let after = segments.partition_point(|segment| segment.column <= column);
        let segment = segments.get(after.checked_sub(1)?)?;
        let source = self.sources.get(segment.source as usize).filter(|path| !path.is_empty())?;
        let (line, to) = segment.to;
        let behind = column - segment.column;
        Some(InSource { source, line: line.checked_add(1)?, column: to, behind })
    }

    /// Returns about how much memory it takes, bytes.
    pub fn size(&self) -> usize {
        let names = self.paths + 32 * self.sources.len();
        names + 4 * self.ends.len() + size_of::<Segment>() * self.segments.len()
    }
}

/// Returns the numbers of a segment, and how many there are: 1, 4 or 5.
fn numbers(segment: &str) -> Option<([i64; 5], usize)> {
    let (mut numbers, mut count) = ([0; 5], 0);
    let (mut value, mut shift) = (0u64, 0);
    for byte in segment.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (shift < 35).then_some(())?;
        value |= u64::from(digit & 31) << shift;
        shift += 5;
        if digit & 32 != 0 {
            continue;
        }
        // The lowest bit is the sign.
        let number = i64::try_from(value >> 1).ok()?;
        *numbers.get_mut(count)? = if value & 1 == 1 { -number } else { number };
        count += 1;
        (value, shift) = (0, 0);
    }
    (shift == 0 && matches!(count, 1 | 4 | 5)).then_some((numbers, count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A segment: its column, its source, and line and column there.
    type Place = (u32, Option<(u32, u32, u32)>);

    /// Encodes lines of segments.
    fn encoded(lines: &[Vec<Place>]) -> String {
        fn push(out: &mut String, number: i64) {
            const DIGITS: &[u8] =
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let mut value = number.unsigned_abs() << 1 | u64::from(number < 0);
            loop {
                let digit = value & 31;
                value >>= 5;
                let more = if value > 0 { 32 } else { 0 };
                out.push(DIGITS[(digit | more) as usize] as char);
                if value == 0 {
                    break;
                }
            }
        }
        let (mut source, mut line, mut there) = (0, 0, 0);
        let mut out = Vec::new();
        for segments in lines {
            let mut column = 0;
            let texts = segments.iter().map(|(at, place)| {
                let mut text = String::new();
                push(&mut text, i64::from(*at) - column);
                column = i64::from(*at);
                if let Some((to, at, begins)) = place {
                    push(&mut text, i64::from(*to) - source);
                    push(&mut text, i64::from(*at) - line);
                    push(&mut text, i64::from(*begins) - there);
                    (source, line, there) = (i64::from(*to), i64::from(*at), i64::from(*begins));
                }
                text
            });
            out.push(texts.collect::<Vec<_>>().join(","));
        }
        out.join(";")
    }

    fn json(mappings: &str) -> String {
        format!(
            r#"{{"version":3,"sources":["a.ts","../b.ts"],"names":[],"mappings":"{mappings}"}}"#
        )
    }

    fn at(map: &SourceMap, line: u32, column: u32) -> Option<String> {
        map.place(line, column)
            .map(|InSource { source, line, column, .. }| format!("{source}:{line}:{column}"))
    }

    #[test]
    fn a_place_has_the_segment_before_it_in_its_line() {
        // What tsc 5 writes for two functions, cut.
        let map = SourceMap::parse(json("AAAA,SAAS;IACP;CCGA").as_bytes(), "/srv/dist/a.js.map");
        let map = map.expect("a map");
        assert_eq!(at(&map, 1, 0).as_deref(), Some("/srv/dist/a.ts:1:0"));
        assert_eq!(at(&map, 1, 400).as_deref(), Some("/srv/dist/a.ts:1:9"));
        assert_eq!(at(&map, 2, 4).as_deref(), Some("/srv/dist/a.ts:2:2"));
        assert_eq!(at(&map, 2, 3), None, "no segment begins before");
        assert_eq!(at(&map, 3, 1).as_deref(), Some("/srv/b.ts:5:2"));
        let behind = |column| map.place(1, column).map(|place| place.behind);
        assert_eq!([8, 9, 12].map(behind), [Some(8), Some(0), Some(3)]);
        assert_eq!([at(&map, 0, 0), at(&map, 4, 0), at(&map, u32::MAX, 0)], [None, None, None]);
    }

    #[test]
    fn a_line_counts_without_a_column() {
        // A column of -1, which no source has.
        let map = SourceMap::parse(json("AAAD").as_bytes(), "/srv/a.js.map").expect("a map");
        assert_eq!(at(&map, 1, 0).as_deref(), Some("/srv/a.ts:1:0"));
    }

    #[test]
    fn code_of_no_source_and_unknown_sources_have_no_place() {
        let map = r#"{"version":3,"sources":[null,"a.ts"],"mappings":"AAAA,E,ECAA"}"#;
        let map = SourceMap::parse(map.as_bytes(), "/x").expect("a map");
        assert_eq!([at(&map, 1, 0), at(&map, 1, 2)], [None, None]);
        assert_eq!(at(&map, 1, 4).as_deref(), Some("/a.ts:1:0"));
    }

    #[test]
    fn sections_are_parts_of_the_script() {
        let part = |line: u32, column: u32, source: &str, mappings: &str| {
            format!(
                r#"{{"offset":{{"line":{line},"column":{column}}},"map":{{"version":3,"sources":["{source}"],"mappings":"{mappings}"}}}}"#
            )
        };
        let map = |parts: &[String]| {
            let json = format!(r#"{{"version":3,"sections":[{}]}}"#, parts.join(","));
            SourceMap::parse(json.as_bytes(), "/s/x.map")
        };
        let parts = [
            part(0, 0, "a", "AAAA;AACA"),
            part(1, 10, "b", "AAAA,EAEA;AACA"),
            part(5, 0, "c", "AAAA"),
        ];
        let found = map(&parts).expect("a map");
        assert_eq!(at(&found, 2, 9).as_deref(), Some("/s/a:2:0"));
        assert_eq!(at(&found, 2, 10).as_deref(), Some("/s/b:1:0"));
        assert_eq!(at(&found, 2, 12).as_deref(), Some("/s/b:3:0"));
        assert_eq!(at(&found, 3, 0).as_deref(), Some("/s/b:4:0"));
        assert_eq!([at(&found, 4, 0), at(&found, 5, 0)], [None, None]);
        assert_eq!(at(&found, 6, 7).as_deref(), Some("/s/c:1:0"));
        assert_eq!(map(&[parts[2].clone(), parts[0].clone()]), None, "out of order");
        let in_line = [part(0, 10, "a", "AAAA"), part(0, 3, "b", "AAAA")];
        assert_eq!(map(&in_line), None, "out of order in a line");
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"version":2,"sources":["a"],"mappings":"AAAA"}"#,
            &json("AAA"),
            &json("AAAAAA"),
            &json("AA!A"),
            &json("A g"),
            &json("AAAg"),
            &json("ggggggggggggE"),
            &json("AEAA"),
            &json("ADAA"),
            &json("AADA"),
            &json("D"),
        ] {
            assert_eq!(SourceMap::parse(text.as_bytes(), "/x"), None, "{text}");
        }
        assert!(SourceMap::parse(format!(")]}}'\n{}", json("AAAA")).as_bytes(), "/x").is_some());
        assert!(SourceMap::parse(json("").as_bytes(), "/x").is_some());
    }

    proptest! {
        /// Whatever the numbers are, a map is read or refused, and its places are in its sources.
        #[test]
        fn any_numbers_are_read_or_refused(
            parts in prop::collection::vec(
                ("[A-Za-f0-9+/,;]{0,60}", 0u32..6, prop::sample::select(vec![0u32, 3, u32::MAX])), 1..4),
        ) {
            let part = |(mappings, line, column): &(String, u32, u32)| {
                format!(
                    r#"{{"offset":{{"line":{line},"column":{column}}},"map":{}}}"#,
                    json(mappings)
                )
            };
            let listed: Vec<String> = parts.iter().map(part).collect();
            let whole = format!(r#"{{"version":3,"sections":[{}]}}"#, listed.join(","));
            for text in [whole, json(&parts[0].0)] {
                let Some(map) = SourceMap::parse(text.as_bytes(), "/s/x.map") else { continue };
                for (line, column) in (0..70).flat_map(|line| [(line, 0), (line, 9), (line, u32::MAX)]) {
                    if let Some(InSource { source, line, .. }) = map.place(line, column) {
                        prop_assert!(["/s/a.ts", "/b.ts"].contains(&&**source) && line > 0);
                    }
                }
            }
        }

        /// Every place is that of the last segment before it, in its line.
        #[test]
        fn places_are_those_that_were_encoded(
            lines in prop::collection::vec(prop::collection::btree_map(
                0u32..40, prop::option::of((0u32..2, 0u32..5000, 0u32..300)), 0..6), 0..8),
            line in 1u32..10, column in 0u32..50,
        ) {
            let listed: Vec<Vec<_>> =
                lines.iter().map(|line| line.iter().map(|(at, to)| (*at, *to)).collect()).collect();
            let map = SourceMap::parse(json(&encoded(&listed)).as_bytes(), "/s/x.map").expect("a map");
            let expected = lines
                .get(line as usize - 1)
                .and_then(|line| line.range(..=column).next_back())
                .and_then(|(_, place)| *place)
                .map(|(source, line, column)| format!("{}:{}:{column}", ["/s/a.ts", "/b.ts"][source as usize], line + 1));
            prop_assert_eq!(at(&map, line, column), expected);
        }
    }
}
