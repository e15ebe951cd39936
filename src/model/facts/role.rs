//! What a name that replaces a function's still says of waits: `kvqmzrtghj[loop]`. Projection and
//! states decide by names, and must decide the same of a profile whose names were replaced. No
//! compiler gives such names.

use crate::model::vocabulary::state::FutexKind;

/// As a frame, in waiting for work (`projection::idle`).
pub const WAITS: &str = "waits";
pub const LOOP: &str = "loop";
pub const PLUMBING: &str = "plumbing";
pub const MAIN: &str = "main";
pub const JOIN: &str = "join";

/// Of a futex wait beneath it.
const FUTEX: [(&str, FutexKind); 3] =
    [("lock", FutexKind::Lock), ("wait", FutexKind::Wait), ("sleep", FutexKind::Sleep)];

pub fn of_futex(kind: FutexKind) -> &'static str {
    FUTEX.iter().find(|(_, known)| *known == kind).map_or("wait", |(word, _)| word)
}

pub fn to_futex(word: &str) -> Option<FutexKind> {
    FUTEX.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
}

/// The name with these roles.
pub fn with(name: &str, roles: &[&str]) -> String {
    if roles.is_empty() { name.to_owned() } else { format!("{name}[{}]", roles.join("+")) }
}

/// The roles a name tells. `None`: it is no such name.
pub fn of(name: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, roles) = name.strip_suffix(']')?.rsplit_once('[')?;
    let known = |word: &str| {
        [WAITS, LOOP, PLUMBING, MAIN, JOIN].contains(&word) || to_futex(word).is_some()
    };
    roles.split('+').all(known).then(|| roles.split('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_come_back_and_other_names_have_none() {
        let name = with("a::b", &[LOOP, of_futex(FutexKind::Sleep)]);
        assert_eq!(name, "a::b[loop+sleep]");
        assert_eq!(of(&name).expect("it has some").collect::<Vec<_>>(), ["loop", "sleep"]);
        for other in
            ["a::b", "a[b]", "[torn]", "a[loop+b]", "a[]", "operator[]", with("x", &[]).as_str()]
        {
            assert!(of(other).is_none(), "{other}");
        }
    }
}
