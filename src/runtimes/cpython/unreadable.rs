//! Why an interpreter cannot be read, in words.

/// Why an interpreter cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// It has no such thing yet.
    Starting(&'static str),
    /// It never can, for this reason.
    Refused(String),
    /// Its memory is not what it should be; a moment later it may be.
    Odd(&'static str),
}

impl Unreadable {
    /// Whether another attempt is useless.
    pub fn is_final(&self) -> bool {
        matches!(self, Unreadable::Refused(_))
    }

    /// Returns the message for the user: none while the interpreter may still be starting.
    pub fn message(&self, for_the_last_time: bool) -> Option<String> {
        let why = match self {
            Unreadable::Refused(why) => why.clone(),
            Unreadable::Starting(what) if for_the_last_time => format!("it has no {what}"),
            Unreadable::Odd(why) if for_the_last_time => (*why).to_owned(),
            Unreadable::Starting(_) | Unreadable::Odd(_) => return None,
        };
        Some(format!("its Python frames cannot be read: {why}"))
    }
}
