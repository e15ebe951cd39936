//! Settings of every kind.

use proptest::prelude::*;
use sampletop::model::projection::settings::{
    Filter, Filters, Grouping, Level, Metric, NativeFrames, Range, Rename, RollUp, Settings,
    SortColumn, Whose, pattern,
};
use sampletop::model::vocabulary::frame::SECOND;

use super::sessions::START;

fn filter<T: std::fmt::Debug + Clone + 'static>(values: Vec<T>) -> BoxedStrategy<Filter<T>> {
    let set = (prop::sample::select(values), any::<bool>());
    prop_oneof![
        Just(Filter::default()),
        set.prop_map(|(value, on)| Filter { value: Some(value), on })
    ]
    .boxed()
}

fn patterns(texts: &[&str]) -> Vec<regex::Regex> {
    texts.iter().map(|text| pattern(text).expect("a pattern")).collect()
}

prop_compose! {
    fn filters()(
        interesting in filter(vec![vec!["shop::".to_owned()], vec!["com.shop".to_owned(), "libc".to_owned()]]),
        focus in filter(patterns(&["pay|vat", "^com"])),
        ignore in filter(patterns(&["vfs_read", "f1"])),
        hide in filter(patterns(&["f[0-9]", "Cart"])),
        (no_kernel, skip_daemon, gil) in any::<(bool, bool, bool)>(),
        native in prop::sample::select(&NativeFrames::ALL[..]),
        threads in filter(patterns(&["work", "main|GC"])),
        min_percent in filter(vec![0.1 + 0.2, 5.0]),
    ) -> Filters {
        Filters { interesting, focus, ignore, hide, no_kernel, native, threads, skip_daemon, gil, min_percent }
    }
}

prop_compose! {
    pub fn settings()(
        metric in prop::sample::select(&Metric::ALL[..]),
        roll_up in prop::sample::select(&RollUp::ALL[..]),
        grouping in prop::sample::select(vec![
            Grouping::Rules, Grouping::Name, Grouping::Thread, Grouping::Process, Grouping::None,
            Grouping::parse("frame:shop::").expect("a grouping"),
            Grouping::Label(None), Grouping::Label(Some("tenant".into())),
        ]),
        rename in prop::sample::select(vec![vec![], vec![Rename::parse("s/(work)-/${1}s /").expect("a rule")]]),
        filters in filters(),
        range in prop_oneof![
            Just(Range::Cumulative { since: None }),
            (0..100 * SECOND).prop_map(|after| Range::Cumulative { since: Some(START + after) }),
            (SECOND..7_200 * SECOND).prop_map(Range::Rolling),
        ],
        (idle, idle_at, reverse) in any::<(bool, bool, bool)>(),
        sort in prop::sample::select(&SortColumn::ALL[..]),
        level in prop::sample::select(&Level::ALL[..]),
    ) -> Settings {
        let whose = |text: &str, mine| Whose { pattern: pattern(text).expect("a pattern"), mine };
        let whose = if reverse { vec![whose("^main$", false), whose("lib", true)] } else { Vec::new() };
        let idle_at = if idle_at { patterns(&["^main$", "pay"]) } else { Vec::new() };
        Settings {
            metric, roll_up, grouping, rename, filters, level, whose, range, idle, idle_at, sort, reverse,
            inverted: false,
        }
    }
}
