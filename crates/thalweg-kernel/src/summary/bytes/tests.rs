use super::*;
use proptest::prelude::*;

fn bounds(values: &[&str]) -> ByteBounds {
    ByteBounds::of_values(values.iter().map(|value| value.as_bytes())).unwrap()
}

fn shown(values: &[&str]) -> String {
    format!("{:?}", bounds(values))
}

#[test]
fn bounds_are_cut_sixteen_bytes_after_what_all_begin_with() {
    assert_eq!(shown(&["b", "", "abc"]), "..=b");
    assert_eq!(
        shown(&["0123456789abcdef"; 2]),
        "0123456789abcdef..=0123456789abcdef"
    );
    let rooms = [
        "site-3/room-17/temperature",
        "site-3/room-17/pressure",
        "site-3/room-2",
    ];
    assert_eq!(shown(&rooms), "site-3/room-17/pressure..=site-3/room-2");
    let long = ["b0123456789abcdefgh", "a0123456789abcdefgh"];
    assert_eq!(
        shown(&long),
        "a0123456789abcde (cut)..=b0123456789abcdf (cut)"
    );
    let only = "x".repeat(100);
    let common = bounds(&[&only]);
    assert_eq!(common.low(), (&only.as_bytes()[..64], false));
    let above = "x".repeat(63) + "y";
    assert_eq!(common.high(), (Some(above.as_bytes()), false));
}

#[test]
fn bytes_that_are_the_largest_have_no_bound_above() {
    let of = |values: [&[u8]; 2]| ByteBounds::of_values(values.into_iter()).unwrap();
    assert_eq!(of([&[255; 17], b"a"]).high(), (None, false));
    assert_eq!(of([&[255; 16], b"a"]).high(), (Some(&[255; 16][..]), true));
    let mut largest = [255; 17];
    largest[2] = 7;
    assert_eq!(
        of([&largest, b"a"]).high(),
        (Some(&[255, 255, 8][..]), false)
    );
    assert_eq!(successor(b"ab\xFF\xFF"), Some(b"ac".to_vec()));
    assert_eq!(successor(&[255, 255]), None);
    assert_eq!(successor(b""), None);
}

#[test]
fn of_equal_bounds_the_exact_one_stays() {
    let (short, long) = ("0123456789abcdef", "0123456789abcdefg");
    let cut = bounds(&[long, "z"]);
    assert_eq!(cut.low(), (short.as_bytes(), false));
    let exact = bounds(&[short]);
    for merged in [cut.merge(&exact), exact.merge(&cut)] {
        assert_eq!(merged.low(), (short.as_bytes(), true));
        assert_eq!(merged.high(), (Some(&b"z"[..]), true));
    }
    let unknown = cut.merge(&ByteBounds::UNKNOWN);
    assert_eq!(
        (unknown.low(), unknown.high()),
        ((&b""[..], false), (None, false))
    );
    assert_eq!(
        bounds(&[""]).merge(&ByteBounds::UNKNOWN).low(),
        (&b""[..], true)
    );
}

#[test]
fn a_high_bound_that_is_cut_is_no_value() {
    let cut = bounds(&["a", "b0123456789abcdefgh"]);
    let high = cut.high().0.unwrap();
    assert!(cut.misses(Some(high), None, false));
    let exact = bounds(&["a", "c"]);
    assert!(!exact.misses(Some(b"c"), None, false));
    assert!(exact.misses(Some(b"c\0"), None, false));
    // From "a" up to, and without, "a" there is nothing.
    assert!(exact.misses(None, Some(b"a"), true) && !exact.misses(None, Some(b"a"), false));
    assert!(!ByteBounds::UNKNOWN.misses(Some(&[255; 80]), None, false));
}

/// Values that share beginnings, some longer than a bound, some with the largest byte.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(b'a'), 2 => Just(255), 1 => any::<u8>()];
    let front = prop_oneof![Just(0), 0_usize..90, Just(7), Just(63)];
    (front, prop::collection::vec(byte, 0..30)).prop_map(|(front, rest)| {
        let mut value = vec![b'f'; front];
        value.extend(rest);
        value
    })
}

fn of(values: &[Vec<u8>]) -> Option<ByteBounds> {
    ByteBounds::of_values(values.iter().map(Vec::as_slice))
}

/// Checks the bounds of a block against its values.
fn check(bounds: &ByteBounds, values: &[Vec<u8>]) {
    let (smallest, largest) = (values.iter().min().unwrap(), values.iter().max().unwrap());
    let (low, low_is_exact) = bounds.low();
    assert!(low.len() <= MAX_BOUND_BYTES && low <= &smallest[..]);
    assert!(!low_is_exact || low == smallest);
    let (high, high_is_exact) = bounds.high();
    if let Some(high) = high {
        assert!(high.len() <= MAX_BOUND_BYTES);
        assert!(if high_is_exact {
            high == largest
        } else {
            high > &largest[..]
        });
    }
    assert!(bounds.has_room());
}

proptest! {
    #[test]
    fn bounds_hold_and_prune_what_is_not_there(
        values in prop::collection::vec(value(), 1..40),
        ends in (prop::option::of(value()), prop::option::of(value())),
        is_open in any::<bool>(),
    ) {
        let bounds = of(&values).unwrap();
        check(&bounds, &values);
        let (first, last) = (ends.0.as_deref(), ends.1.as_deref());
        let is_in = |value: &&Vec<u8>| {
            first.is_none_or(|first| first <= &value[..])
                && last.is_none_or(|last| &value[..] < last || !is_open && value[..] == *last)
        };
        if bounds.misses(first, last, is_open) {
            prop_assert_eq!(values.iter().find(is_in), None);
        }
    }

    #[test]
    fn merging_has_no_order(
        parts in prop::collection::vec(prop::collection::vec(value(), 1..6), 3..4),
    ) {
        let [a, b, c] = [0, 1, 2].map(|at| of(&parts[at]).unwrap());
        prop_assert_eq!(a.merge(&b), b.merge(&a));
        prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
        prop_assert_eq!(a.merge(&a), a);
        check(&a.merge(&b).merge(&c), &parts.concat());
    }

    #[test]
    fn the_quick_way_to_the_extremes_is_right(values in prop::collection::vec(value(), 0..300)) {
        let found = extremes(values.iter().map(Vec::as_slice));
        let expected = values.iter().min().zip(values.iter().max());
        prop_assert_eq!(found, expected.map(|(min, max)| (&min[..], &max[..])));
    }

    #[test]
    fn all_that_begins_with_a_prefix_is_below_its_successor(prefix in value(), rest in value()) {
        let whole = [&prefix[..], &rest].concat();
        prop_assert!(successor(&prefix).is_none_or(|above| whole < above && prefix < above));
    }
}
