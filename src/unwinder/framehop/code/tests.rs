use super::*;

#[test]
fn addresses_with_one_place_get_caches_of_their_own() {
    let mut code = Code::new(Files::default(), 1, Box::new(|| Ok(Maps::default())));
    let mut caches = |from: u64, number: u64| -> Vec<u8> {
        (0..number).map(|nth| code.cache_for(from + nth * PLACES as u64)).collect()
    };
    assert_eq!(caches(0x40_1000, 9), [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    assert_eq!(caches(0x40_1001, 2), [0, 1], "another place");
}

#[test]
fn the_newest_mappings_have_another_number_after_each_reading() {
    let text = |at: u32| format!("{at}000-{at}800 r-xp 00000000 00:00 0 [vdso]\n");
    let readings = std::cell::Cell::new(0);
    let source = move || {
        readings.set(readings.get() + 1);
        Ok(Maps::parse(text(readings.get()).as_bytes()))
    };
    let mut code = Code::new(Files::default(), 1, Box::new(source));
    let newest = |code: &Code| {
        let (maps, number) = code.newest();
        (maps.iter().map(|mapping| mapping.start).collect::<Vec<_>>(), number)
    };
    assert!(newest(&code).0.is_empty(), "none was read");
    code.read_live();
    let (maps, first) = newest(&code);
    assert_eq!(maps, [0x1000]);
    // Where new code is reported: of the live ones, once there are some.
    code.reported = true;
    assert_eq!(newest(&code), (vec![0x1000], first));
    code.read_live();
    let (maps, second) = newest(&code);
    assert_eq!(maps, [0x2000]);
    code.read_live();
    let (maps, third) = newest(&code);
    assert_eq!(maps, [0x3000]);
    assert!(first != second && second != third && third != first);
}
