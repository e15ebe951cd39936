var Kind;
(function (Kind) {
    Kind["Plain"] = "plain";
    Kind["Deep"] = "deep";
})(Kind || (Kind = {}));
class Sum {
    constructor(lines) {
        this.lines = lines;
    }
    total(kind) {
        let sum = 0;
        for (const line of this.lines) {
            sum += this.of(line);
            if (kind === Kind.Deep && line.count === 2)
                sum += rest(sum);
        }
        return sum;
    }
}
class Cart extends Sum {
    of(line) {
        return line.price * line.count;
    }
}
const rest = (n) => {
    const stack = new Error('here').stack ?? '';
    console.log('ready');
    console.log(JSON.stringify(stack.split('\n').slice(1)));
    const cell = new Int32Array(new SharedArrayBuffer(4));
    return Atomics.wait(cell, 0, 0, 60_000) === 'ok' ? n : 0;
};
async function checkout(lines) {
    await null;
    return [lines].map((each) => new Cart(each).total(Kind.Deep))[0];
}
void checkout([{ price: 1, count: 1 }, { price: 2, count: 2 }]);
//# sourceMappingURL=app.js.map