// A program in TypeScript whose innermost function prints its own stack, as Node says it with
// source maps, and waits. How dist/ was made:
//   tsc --target es2021 --module commonjs --lib es2022,dom --sourceMap --outDir dist src/app.ts
//   esbuild src/app.ts --bundle --minify --sources-content=false --sourcemap=inline --platform=node --outfile=dist/min.js
interface Line {
  readonly price: number;
  readonly count: number;
}

type Lines = readonly Line[];

enum Kind {
  Plain = 'plain',
  Deep = 'deep',
}

abstract class Sum {
  constructor(protected readonly lines: Lines) {}

  abstract of(line: Line): number;

  total(kind: Kind): number {
    let sum = 0;
    for (const line of this.lines) {
      sum += this.of(line);
      if (kind === Kind.Deep && line.count === 2) sum += rest(sum);
    }
    return sum;
  }
}

class Cart extends Sum {
  override of(line: Line): number {
    return line.price * line.count;
  }
}

const rest = (n: number): number => {
  const stack: string = new Error('here').stack ?? '';
  console.log('ready');
  console.log(JSON.stringify(stack.split('\n').slice(1)));
  const cell = new Int32Array(new SharedArrayBuffer(4));
  return Atomics.wait(cell, 0, 0, 60_000) === 'ok' ? n : 0;
};

async function checkout(lines: Lines): Promise<number> {
  await null;
  return [lines].map((each) => new Cart(each).total(Kind.Deep))[0]!;
}

void checkout([{ price: 1, count: 1 }, { price: 2, count: 2 }]);
