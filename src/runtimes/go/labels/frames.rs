//! The frames that carry labels in stacks.

use std::collections::{HashMap, HashSet};

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::RawFrame;
use crate::model::vocabulary::labels;
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::go::labels::RawLabels;

/// Maximum keys of a process, and values of one key: a program may have a value for each request.
const KEYS_MAX: usize = 64;
const VALUES_MAX: usize = 200;
/// Maximum different sets of labels of a process.
const SETS_MAX: usize = 1000;

/// Returns the text of the frame that carries these labels; `None`: there are none.
pub fn text_of(raw: &RawLabels) -> Option<String> {
    text_with(raw, |_, value| value)
}

/// Does the same; `value`: what is shown of the value of a key.
fn text_with(raw: &RawLabels, mut value: impl FnMut(&str, String) -> String) -> Option<String> {
    let all = match raw {
        RawLabels::None => return None,
        RawLabels::Unknown => return Some(labels::text_of_others()),
        RawLabels::All(all) => all,
    };
    let clean = |(key, of_key): &(Vec<u8>, Vec<u8>)| {
        let [key, of_key] = [key, of_key].map(|raw| clean_bytes(raw, NAME_CAP));
        let shown = value(&key, of_key);
        (key, shown)
    };
    let mut all: Vec<(String, String)> = all.iter().map(clean).collect();
    all.sort_unstable();
    Some(labels::text(&all))
}

/// The frames that carry labels of one process. Their number is limited: labels of which a program
/// has ever new ones are not told apart from some number on.
pub struct LabelFrames {
    names: Names,
    /// By the text of the labels.
    frames: HashMap<String, RawFrame>,
    /// By key.
    values: HashMap<String, HashSet<String>>,
}

impl LabelFrames {
    pub fn new(names: Names) -> LabelFrames {
        LabelFrames { names, frames: HashMap::new(), values: HashMap::new() }
    }

    /// Returns the frame that carries these labels; `None`: there are none.
    pub fn frame(&mut self, raw: &RawLabels) -> Option<RawFrame> {
        let text = text_with(raw, |key, value| self.told_apart(key, value))?;
        let is_room = self.frames.len() < SETS_MAX || self.frames.contains_key(&text);
        Some(self.named(if is_room { text } else { labels::text_of_others() }))
    }

    /// Returns the value that is shown of a label: its own, or what stands for the rest.
    fn told_apart(&mut self, key: &str, value: String) -> String {
        if !self.values.contains_key(key) && self.values.len() < KEYS_MAX {
            self.values.insert(key.to_owned(), HashSet::new());
        }
        let known = self.values.get_mut(key);
        let is_told_apart = known.is_some_and(|known| {
            known.contains(&value) || known.len() < VALUES_MAX && known.insert(value.clone())
        });
        if is_told_apart { value } else { labels::OTHER.to_owned() }
    }

    fn named(&mut self, text: String) -> RawFrame {
        let LabelFrames { names, frames, .. } = self;
        let location = Location::named(&text, FrameKind::Marker);
        *frames.entry(text).or_insert_with(|| names.frame(vec![location]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::go::labels::tests::all;

    /// Returns the text of the frame that carries these labels.
    fn carried(frames: &mut LabelFrames, names: &Names, labels: &[(&str, &str)]) -> String {
        let frame = frames.frame(&all(labels)).expect("labels");
        names.named(frame).expect("a name").locations[0].function.to_string()
    }

    #[test]
    fn equal_labels_are_one_frame_and_ever_new_ones_are_not_told_apart() {
        let names = Names::default();
        let mut frames = LabelFrames::new(names.clone());
        assert_eq!(frames.frame(&RawLabels::None), None);
        let one = frames.frame(&all(&[("tenant", "7"), ("handler", "/x")]));
        assert_eq!(frames.frame(&all(&[("handler", "/x"), ("tenant", "7")])), one);
        let mut text = |labels: &[(&str, &str)]| carried(&mut frames, &names, labels);
        assert_eq!(text(&[("tenant", "7"), ("handler", "/x")]), "[labels handler=/x, tenant=7]");
        // A value for each request.
        for nth in 0..VALUES_MAX {
            let id = nth.to_string();
            assert_eq!(
                text(&[("id", &id), ("handler", "/x")]),
                format!("[labels handler=/x, id={id}]")
            );
        }
        assert_eq!(text(&[("id", "new"), ("handler", "/x")]), "[labels handler=/x, id=(other)]");
        assert_eq!(text(&[("id", "3"), ("handler", "/x")]), "[labels handler=/x, id=3]");
        // More and more keys, each with a few values.
        let mut others = 0;
        for nth in 0..2 * SETS_MAX {
            let (key, value) = (format!("k{}", nth % 50), (nth / 50).to_string());
            others += usize::from(text(&[(&key, &value)]) == "[labels (other)]");
        }
        assert_eq!(others, 2 * SETS_MAX - (SETS_MAX - VALUES_MAX - 2));
        let mut frames = LabelFrames::new(names.clone());
        let mut text = |labels: &[(&str, &str)]| carried(&mut frames, &names, labels);
        for nth in 0..KEYS_MAX {
            let key = format!("k{nth:02}");
            assert_eq!(text(&[(&key, "v")]), format!("[labels {key}=v]"));
        }
        assert_eq!(text(&[("new", "v")]), "[labels new=(other)]");
        assert_eq!(text(&[("k07", "v")]), "[labels k07=v]");
        let unknown = frames.frame(&RawLabels::Unknown).expect("a frame");
        assert_eq!(
            &*names.named(unknown).expect("a name").locations[0].function,
            "[labels (other)]"
        );
    }
}
