// One of each kind of Rust name.
use std::hint::black_box;

mod shapes {
    use std::hint::black_box;

    pub trait Area {
        fn area(&self) -> u64;
    }

    pub struct Square<T>(pub T);

    impl Area for Square<u64> {
        #[inline(never)]
        fn area(&self) -> u64 {
            black_box(self.0) * black_box(self.0)
        }
    }

    #[inline(never)]
    pub fn generic<T: Area>(shape: &T) -> u64 {
        black_box(shape.area()) + 1
    }
}

#[inline(always)]
fn inlined(n: u64) -> u64 {
    black_box(n).wrapping_mul(3)
}

#[inline(never)]
pub fn caller(n: u64) -> u64 {
    let closure = |m: u64| black_box(m) + inlined(n);
    black_box(closure(n)) ^ 1
}

fn main() {
    let n = std::env::args().count() as u64;
    println!("{}", shapes::generic(&shapes::Square(n)) + caller(n));
}
