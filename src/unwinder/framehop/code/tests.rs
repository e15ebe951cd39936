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
