// A growing piece of memory.

export class Bytes {
  private buffer: ArrayBuffer = new ArrayBuffer(64);
  size: i32 = 0;

  get start(): usize {
    return changetype<usize>(this.buffer);
  }

  clear(): void {
    this.size = 0;
  }

  // room makes place for n bytes at the end and returns their address, which is valid until the next call.
  room(n: i32): usize {
    const needed = this.size + n;
    if (needed > this.buffer.byteLength) {
      let larger = this.buffer.byteLength;
      while (larger < needed) larger *= 2;
      const next = new ArrayBuffer(larger);
      memory.copy(changetype<usize>(next), this.start, this.size);
      this.buffer = next;
    }
    const at = this.start + <usize>this.size;
    this.size = needed;
    return at;
  }

  byte(b: u8): void {
    store<u8>(this.room(1), b);
  }

  append(from: usize, n: i32): void {
    memory.copy(this.room(n), from, n);
  }

  // text appends UTF-8. Half a surrogate pair becomes U+FFFD.
  text(s: string): void {
    const n = s.length;
    const at = this.room(n);
    let i = 0;
    for (; i < n; i++) {
      const unit = load<u16>(changetype<usize>(s) + (<usize>i << 1));
      if (unit >= 0x80) break;
      store<u8>(at + <usize>i, <u8>unit);
    }
    this.size -= n - i;
    for (; i < n; i++) i += this.char(s, i);
  }

  // char appends the character at i and returns by how much it is longer than one unit.
  char(s: string, i: i32): i32 {
    let code: u32 = s.charCodeAt(i);
    if (code < 0x80) {
      this.byte(<u8>code);
      return 0;
    }
    let more = 0;
    if (code >= 0xd800 && code < 0xe000) {
      const low: u32 = code < 0xdc00 && i + 1 < s.length ? s.charCodeAt(i + 1) : 0;
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        more = 1;
      } else {
        code = 0xfffd;
      }
    }
    if (code < 0x800) {
      this.byte(<u8>(0xc0 | (code >> 6)));
    } else {
      if (code < 0x10000) {
        this.byte(<u8>(0xe0 | (code >> 12)));
      } else {
        this.byte(<u8>(0xf0 | (code >> 18)));
        this.byte(<u8>(0x80 | ((code >> 12) & 0x3f)));
      }
      this.byte(<u8>(0x80 | ((code >> 6) & 0x3f)));
    }
    this.byte(<u8>(0x80 | (code & 0x3f)));
    return more;
  }
}

// decode returns UTF-8 as a string. Most texts are ASCII, for which it is several times faster than the runtime's function.
export function decode(start: usize, size: i32): string {
  let high: u8 = 0;
  for (let i = 0; i < size; i++) high |= load<u8>(start + <usize>i);
  if (high >= 0x80) return String.UTF8.decodeUnsafe(start, size);
  const s = changetype<string>(__new(<usize>size << 1, idof<string>()));
  for (let i = 0; i < size; i++) {
    store<u16>(changetype<usize>(s) + (<usize>i << 1), load<u8>(start + <usize>i));
  }
  return s;
}
