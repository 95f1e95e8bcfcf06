//! Rules that tests break one at a time: a rule that no test misses is none.
//!
//! Invariant: without the feature `broken-rules` of the crate that has the rules, which only tests select, every rule is kept and
//! asking costs nothing.

/// Makes the rules of a crate: an enum of them, whether each is kept, and `break_rule`.
#[macro_export]
macro_rules! rules {
    (
        $(#[$of_all:meta])*
        $name:ident {
            $($(#[$of_rule:meta])* $rule:ident,)*
        }
    ) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of_rule])* $rule,)*
        }

        impl $name {
            /// All of them.
            #[cfg(feature = "broken-rules")]
            pub const ALL: &[Self] = &[$(Self::$rule,)*];

            /// Whether the rule is kept.
            #[cfg(not(feature = "broken-rules"))]
            #[expect(clippy::unused_self, reason = "asked only where rules can be broken")]
            pub(crate) const fn is_kept(self) -> bool {
                true
            }

            /// Whether the rule is kept.
            #[cfg(feature = "broken-rules")]
            pub(crate) fn is_kept(self) -> bool {
                BROKEN.get() != Some(self)
            }
        }

        #[cfg(feature = "broken-rules")]
        thread_local! {
            static BROKEN: std::cell::Cell<Option<$name>> = const { std::cell::Cell::new(None) };
        }

        /// Breaks a rule in this thread and in those that it hands the choice on to, or none.
        #[cfg(feature = "broken-rules")]
        pub fn break_rule(rule: Option<$name>) {
            BROKEN.set(rule);
        }
    };
}
