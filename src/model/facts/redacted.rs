//! Roles of functions, appended to replaced names: `kvqmzrtghj[loop]`. Projection and states decide
//! by function names. With the roles they decide the same for a profile whose names were replaced.
//! No compiler creates such names.

use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::FutexKind;

/// Roles of frames in the search for idle waits (`projection::idle`).
pub const WAITS: &str = "waits";
pub const LOOP: &str = "loop";
pub const PLUMBING: &str = "plumbing";
pub const MAIN: &str = "main";
pub const JOIN: &str = "join";
pub const QUERY: &str = "query";
pub const ORDERS: &str = "reads orders";

/// Places of frames in a thread (`projection::thread_base`).
pub const CLOSURE: &str = "closure";
pub const BASE: &str = "base";
pub const RUN: &str = "run";
pub const NATIVE_MAIN: &str = "native main";
pub const MANAGED_BASE: &str = "managed base";
pub const TAKES: &str = "takes";
pub const SERVES: &str = "serves";
pub const SLEEPS: &str = "sleeps";
pub const STARTS: &str = "starts";
pub const OF_LANGUAGE: &str = "of language";
pub const RUNS_TASKS: &str = "runs tasks";
pub const ANY: &str = "any";
pub const JOINS: &str = "joins";
pub const BLOCKS_ON: &str = "blocks on";
pub const FOREIGN: &str = "foreign";
pub const MANAGED_RUN: &str = "managed run";
pub const MANAGED_CLOSURE: &str = "managed closure";
pub const OF_POOL: &str = "of pool";
pub const OF_SERVER: &str = "of server";
pub const RECEIVES: &str = "receives";
pub const OF_QUEUE: &str = "of queue";
pub const MANAGED_MAIN: &str = "managed main";
pub const MANAGED_LIBRARY: &str = "managed library";
pub const PARKS: &str = "parks";
pub const SYNCHRONIZER: &str = "synchronizer";
pub const AWAITS_END: &str = "awaits end";
pub const MAY_TAKE: &str = "may take";
pub const AWAITS: &str = "awaits";
pub const SCRIPT_LIBRARY: &str = "script library";

/// Only leads from one function of an interpreted program to the next (`projection::native`).
pub const GLUE: &str = "glue";

const PLACES: [&str; 29] = [
    CLOSURE,
    BASE,
    RUN,
    NATIVE_MAIN,
    MANAGED_BASE,
    TAKES,
    SERVES,
    SLEEPS,
    STARTS,
    OF_LANGUAGE,
    RUNS_TASKS,
    ANY,
    JOINS,
    BLOCKS_ON,
    FOREIGN,
    MANAGED_RUN,
    MANAGED_CLOSURE,
    OF_QUEUE,
    RECEIVES,
    OF_POOL,
    OF_SERVER,
    MANAGED_MAIN,
    MANAGED_LIBRARY,
    PARKS,
    SYNCHRONIZER,
    AWAITS_END,
    MAY_TAKE,
    AWAITS,
    SCRIPT_LIBRARY,
];

/// Kinds of a futex wait called from the frame.
const FUTEX: [(&str, FutexKind); 3] =
    [("lock", FutexKind::Lock), ("wait", FutexKind::Wait), ("sleep", FutexKind::Sleep)];

/// Whose code it is (`projection::roles`).
const CODE: [(&str, Role); 4] = [
    ("app", Role::App),
    ("library", Role::Library),
    ("runtime", Role::Runtime),
    ("blocking", Role::Wait),
];

/// Returns the word of a role in a replaced name; frames with another role need none.
pub fn of_code_role(role: Role) -> Option<&'static str> {
    CODE.iter().find(|(_, known)| *known == role).map(|(word, _)| *word)
}

/// Returns whose code it is, if the name says so.
pub fn code_role(name: &str) -> Option<Role> {
    of(name)?.find_map(|word| CODE.iter().find(|(known, _)| *known == word).map(|(_, role)| *role))
}

pub fn of_futex(kind: FutexKind) -> &'static str {
    FUTEX.iter().find(|(_, known)| *known == kind).map_or("wait", |(word, _)| word)
}

pub fn to_futex(word: &str) -> Option<FutexKind> {
    FUTEX.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
}

/// Returns the name with these roles appended.
pub fn with(name: &str, roles: &[&str]) -> String {
    if roles.is_empty() { name.to_owned() } else { format!("{name}[{}]", roles.join("+")) }
}

/// Returns the roles in a name. `None` if it has none.
pub fn of(name: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, roles) = name.strip_suffix(']')?.rsplit_once('[')?;
    let known = |word: &str| {
        [WAITS, LOOP, PLUMBING, MAIN, JOIN, BLOCKS_ON, QUERY, ORDERS].contains(&word)
            || PLACES.contains(&word)
            || word == GLUE
            || to_futex(word).is_some()
            || CODE.iter().any(|(known, _)| *known == word)
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
