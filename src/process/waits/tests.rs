use super::*;

#[test]
fn addresses_as_programs_give_them() {
    let inet = [2, 0, 0x15, 0x38, 10, 0, 3, 9, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(address(&inet).as_deref(), Some("10.0.3.9:5432"));
    let mut inet6 = vec![10, 0, 1, 0xbb, 0, 0, 0, 0];
    inet6.extend(Ipv6Addr::LOCALHOST.octets());
    assert_eq!(address(&inet6).as_deref(), Some("[::1]:443"));
    assert_eq!(address(b"\x01\0/run/x.sock\0garbage").as_deref(), Some("/run/x.sock"));
    assert_eq!(address(b"\x01\0\0abstract").as_deref(), Some("@abstract"));
    assert_eq!(address(b"\x01\0/run/\x1b[2Jx").as_deref(), Some("/run/[2Jx"));
    for none in [
        &b""[..],
        b"\x02",
        b"\x02\0\x15\x38\x0a\0\x03",
        b"\x01\0",
        b"\x01\0\0",
        b"\x10\0\0\0",
        &inet6[..23],
    ] {
        assert_eq!(address(none), None, "{none:?}");
    }
}

#[test]
fn lines_of_the_tables_of_sockets() {
    let tcp = |line: &str| parse_inet(line.as_bytes(), "tcp");
    let rest = "00000000:00000000 00:00000000 00000000  1000        0 4242 1 0000000000000000 100 0 0 10 0";
    let named = |name: &str| Some((4242, name.to_owned()));
    assert_eq!(
        tcp(&format!("  0: 0100007F:1F90 00000000:0000 0A {rest}")),
        named("127.0.0.1:8080")
    );
    assert_eq!(tcp(&format!("  0: 00000000:1F90 00000000:0000 0A {rest}")), named(":8080"));
    assert_eq!(
        tcp(&format!("  1: 0100007F:D431 0903000A:1538 01 {rest}")),
        named("-> 10.0.3.9:5432")
    );
    assert_eq!(tcp(&format!("  1: 0100007F:D431 00000000:0000 07 {rest}")), named("tcp"));
    let udp = parse_inet(format!("  1: 00000000:0035 00000000:0000 07 {rest}").as_bytes(), "udp");
    assert_eq!(udp, named(":53"));
    let (any, here) = ("0".repeat(32), "00000000000000000000000001000000");
    assert_eq!(tcp(&format!("  2: {any}:01BB {any}:0000 0A {rest}")), named(":443"));
    assert_eq!(tcp(&format!("  2: {here}:9999 {here}:01BB 02 {rest}")), named("-> [::1]:443"));
    let mapped = "0000000000000000FFFF00000903000A";
    assert_eq!(
        tcp(&format!("  2: {mapped}:9999 {mapped}:1538 01 {rest}")),
        named("-> 10.0.3.9:5432")
    );
    for none in [
        "",
        "0:",
        "  0: 0100007F:1F90 00000000:0000 0A",
        "  0: 0100007F:1F90 00000000 0A 0 0 0 0 0 4242",
        "  0: 0100007:1F90 00000000:0000 0A 0 0 0 0 0 4242",
        "  0: 0100007F:1F90 00000000:0000 0A 0 0 0 0 0 0",
        "  0: ééééé:1F90 00000000:0000 0A 0 0 0 0 0 4242",
    ] {
        assert_eq!(tcp(none), None, "{none}");
    }

    let unix = |line: &str| parse_unix(line.as_bytes());
    let head = "0000000000000000: 00000002 00000000 00010000 0001 01";
    assert_eq!(
        unix(&format!("{head} 4242 /run/my x.sock")),
        Some((4242, Some("/run/my x.sock".into())))
    );
    assert_eq!(unix(&format!("{head}  4242 @abstract")), Some((4242, Some("@abstract".into()))));
    assert_eq!(unix(&format!("{head} 4242")), Some((4242, None)));
    for none in ["", "4242", "x.sock 1 2 3 4 5 4242 /forged", head, &format!("{head} 0 /run/x")] {
        assert_eq!(unix(none), None, "{none}");
    }
}

#[test]
fn links_of_descriptors() {
    assert_eq!(numbered(b"socket:[123]", b"socket:["), Some(123));
    for none in [
        &b"socket:[]"[..],
        b"socket:[1",
        b"/socket:[1]",
        b"socket:[x]",
        b"socket:[123456789012345678901]",
    ] {
        assert_eq!(numbered(none, b"socket:["), None);
    }
}
