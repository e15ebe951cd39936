//! Why a V8 cannot be read, in words.

/// Why a V8 cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// It has no such thing yet.
    Starting(&'static str),
    /// It never can, for this reason.
    Refused(String),
}

impl Unreadable {
    /// Whether another attempt is useless.
    pub fn is_final(&self) -> bool {
        matches!(self, Unreadable::Refused(_))
    }

    /// Returns the message for the user: none while V8 may still be starting.
    pub fn message(&self, for_the_last_time: bool) -> Option<String> {
        let why = match self {
            Unreadable::Refused(why) => why.clone(),
            Unreadable::Starting(what) if for_the_last_time => format!("it has no {what}"),
            Unreadable::Starting(_) => return None,
        };
        Some(format!("its JavaScript frames cannot be read: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_v8_that_starts_is_no_message_until_the_last_attempt() {
        let starting = Unreadable::Starting("types of objects");
        assert_eq!((starting.is_final(), starting.message(false)), (false, None));
        let says = "its JavaScript frames cannot be read: it has no types of objects";
        assert_eq!(starting.message(true).as_deref(), Some(says));
        let refused = Unreadable::Refused("the layout of V8 9.4 is not known".into());
        let says = "its JavaScript frames cannot be read: the layout of V8 9.4 is not known";
        assert_eq!((refused.is_final(), refused.message(false).as_deref()), (true, Some(says)));
    }
}
