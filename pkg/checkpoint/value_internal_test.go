package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/deltarouter/deltarouter/pkg/event"
)

func testCodec(t testing.TB) *codec {
	t.Helper()
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// value makes a value of bytes as they are stored, with the checksum that they should have.
func signed(c *codec, encoding byte, stored []byte) []byte {
	value := append([]byte{encoding, 0, 0, 0, 0}, stored...)
	binary.LittleEndian.PutUint32(value[1:], c.sum(7, []byte("key"), encoding, stored))
	return value
}

func TestValue(t *testing.T) {
	c := testCodec(t)
	for _, payload := range []string{"", "short", strings.Repeat("long ", 1000)} {
		value := c.append([]byte("before"), 7, []byte("key"), []byte(payload))[len("before"):]
		if got, err := c.payload(7, []byte("key"), value); err != nil || string(got) != payload {
			t.Errorf("%.10s: %q, %v", payload, got, err)
		}
		if len(value) > len(payload)+header || len(payload) > 1000 && len(value) > 100 {
			t.Errorf("%.10s takes %d bytes", payload, len(value))
		}
		if c.check(8, []byte("key"), value) == nil || c.check(7, []byte("kez"), value) == nil {
			t.Errorf("%.10s: a value is valid in another place", payload)
		}
	}
}

// A value is bounded whatever it says of itself.
func TestHostileValue(t *testing.T) {
	c := testCodec(t)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	bomb := enc.EncodeAll(make([]byte, maxPayload+1), nil)
	for name, value := range map[string][]byte{
		"nothing": nil, "short": {raw, 1, 2, 3}, "no frame": signed(c, compressed, []byte("x")), "unknown": signed(c, 9, nil), "bomb": signed(c, compressed, bomb),
	} {
		if got, err := c.payload(7, []byte("key"), value); err == nil {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
}

// What is no JSON was not written by anybody: the file is damaged.
func TestDamagedEvent(t *testing.T) {
	r := &event.Resource{}
	r.Resource = "pods"
	o, err := event.ParseObject(r, `{"metadata":{"name":"a"}}`)
	if err != nil {
		t.Fatal(err)
	}
	read := func(e *event.Event, cut int) error {
		payload := eventPayload(&event.Delta{Op: event.Added, New: o, Event: e})
		owed := Owed{Delta: &event.Delta{}}
		var f fields
		f.uint(moreEvent)
		f.bytes(payload[:len(payload)-cut])
		return owed.parseMore(string(f))
	}
	if err := read(&event.Event{Data: []byte(`{}`)}, 0); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"no JSON": read(&event.Event{Data: []byte(`{"x`)}, 0), "cut short": read(&event.Event{Data: []byte(`{}`)}, 1), "very short": read(&event.Event{}, 5),
	} {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzValue(f *testing.F) {
	c := testCodec(f)
	r := &event.Resource{}
	r.Resource = "pods"
	o, err := event.ParseObject(r, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}`)
	if err != nil {
		f.Fatal(err)
	}
	owed := Owed{Delta: &event.Delta{Op: event.Updated, Source: "s", Old: o, New: o, Seen: time.Unix(1, 2)}, Closed: []string{"x"}, Attempts: 3}
	fed := Owed{Delta: event.Feed(owed.Delta, &event.Event{ID: "i", Type: "t", Subject: "n/a", Time: time.Unix(3, 0), Data: []byte(`{"x":1}`), Route: "r"}), Unlimited: true}
	broken := Owed{Delta: event.Feed(owed.Delta, &event.Event{Data: []byte(`{"x":`)})}
	for _, payload := range [][]byte{owed.payload(), fed.payload(), broken.payload(), Identity{o.Key(), "u"}.payload(), watchState{"5", true}.payload(), objectPayload(o, false), bytes.Repeat(owed.payload(), 9)} {
		value := c.append(nil, 7, []byte("key"), payload)
		f.Add(value[0], value[header:])
	}
	f.Fuzz(func(t *testing.T, encoding byte, stored []byte) {
		if _, err := c.payload(7, []byte("key"), append([]byte{encoding}, stored...)); err == nil && len(stored) > 4 && binary.LittleEndian.Uint32(stored) == 0 {
			t.Error("a checksum was not looked at")
		}
		payload, err := c.payload(7, []byte("key"), signed(c, encoding, stored))
		if err != nil {
			return
		}
		if len(payload) > maxPayload {
			t.Errorf("%d bytes", len(payload))
		}
		_, _ = parseObject(payload)
		_, _ = parseWatchState(payload)
		if id, err := parseIdentity(payload); err == nil {
			if again, err := parseIdentity(id.payload()); err != nil || again != id {
				t.Error(again, err)
			}
		}
		owed, err := parseOwed(1, payload, func(_ string, saved event.Resource) *event.Resource { return &saved })
		if err != nil {
			return
		}
		again := owed.payload()
		twice, err := parseOwed(1, again, func(_ string, saved event.Resource) *event.Resource { return &saved })
		if err != nil || !bytes.Equal(twice.payload(), again) {
			t.Errorf("written and read again: %v", err)
		}
	})
}

// FuzzPages walks files that are damaged in ways that no disk would think of: nothing is caught here, a panic is a failure.
func FuzzPages(f *testing.F) {
	c := testCodec(f)
	golden, err := os.ReadFile("testdata/format1.db")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(8192), []byte{1, 2, 3}, uint32(4096*5), []byte{0xff, 0xff})
	f.Add(uint32(4096*2+8), []byte{1, 0, 1, 0}, uint32(4096*3), []byte{})
	f.Add(uint32(4096*4), golden[4096*3:4096*3+200], uint32(4096*7+16), golden[4096*4:4096*4+64])
	f.Fuzz(func(t *testing.T, at uint32, bad []byte, at2 uint32, bad2 []byte) {
		file := bytes.Clone(golden)
		copy(file[min(int(at), len(file)):], bad)
		copy(file[min(int(at2), len(file)):], bad2)
		check := checker{codec: c, meta: c.seed(0, metaBucket)}
		walker := &pages{file: bytes.NewReader(file), size: int64(len(file)), codec: c, visit: check.visit}
		if _, err := walker.walk(); err != nil {
			return
		}
		if check.done() == nil && check.found.count == 0 {
			t.Error("an empty file is in order")
		}
	})
}
