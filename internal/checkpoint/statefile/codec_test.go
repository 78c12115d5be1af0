package statefile

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/deltarouter/deltarouter/test/must"
)

func testCodec(t testing.TB) *Codec {
	t.Helper()
	c, err := NewCodec()
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	return c
}

// value makes a value of stored bytes, with the correct checksum.
func signed(c *Codec, encoding byte, stored []byte) []byte {
	value := append([]byte{encoding, 0, 0, 0, 0}, stored...)
	binary.LittleEndian.PutUint32(value[1:], c.sum(7, []byte("key"), encoding, stored))
	return value
}

func TestValue(t *testing.T) {
	c := testCodec(t)
	for _, payload := range []string{"", "short", strings.Repeat("long ", 1000)} {
		value := c.Append([]byte("before"), 7, []byte("key"), []byte(payload))[len("before"):]
		if got, err := c.Payload(7, []byte("key"), value); err != nil || string(got) != payload {
			t.Errorf("%.10s: %q, %v", payload, got, err)
		}
		if len(value) > len(payload)+header || len(payload) > 1000 && len(value) > 100 {
			t.Errorf("%.10s takes %d bytes", payload, len(value))
		}
		if c.Check(8, []byte("key"), value) == nil || c.Check(7, []byte("kez"), value) == nil {
			t.Errorf("%.10s: a value is valid in another place", payload)
		}
	}
}

// TestLargeValue: a value of any size can be read: a handler's limits allow events of 256 MiB,
// which may compress well.
func TestLargeValue(t *testing.T) {
	c := testCodec(t)
	payload := make([]byte, maxPayload+1)
	value := c.Append(nil, 7, []byte("key"), payload)
	if got, err := c.Payload(7, []byte("key"), value); err != nil || len(got) != len(payload) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}

// The size of a decompressed value is bounded, whatever its header says.
func TestHostileValue(t *testing.T) {
	c := testCodec(t)
	enc, err := zstd.NewWriter(nil)
	must.Succeed(t, err)
	defer enc.Close()
	bomb := enc.EncodeAll(make([]byte, maxPayload+1), nil)
	for name, value := range map[string][]byte{
		"nothing": nil, "short": {raw, 1, 2, 3}, "no frame": signed(c, compressed, []byte("x")), "unknown": signed(c, 9, nil), "bomb": signed(c, compressed, bomb),
	} {
		if got, err := c.Payload(7, []byte("key"), value); err == nil {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
}

// FuzzValue decodes random values: their decompressed size is bounded.
func FuzzValue(f *testing.F) {
	c := testCodec(f)
	for _, payload := range [][]byte{{}, []byte("short"), bytes.Repeat([]byte("long "), 1000)} {
		value := c.Append(nil, 7, []byte("key"), payload)
		f.Add(value[0], value[header:])
	}
	f.Fuzz(func(t *testing.T, encoding byte, stored []byte) {
		if _, err := c.Payload(7, []byte("key"), append([]byte{encoding}, stored...)); err == nil && len(stored) > 4 && binary.LittleEndian.Uint32(stored) == 0 {
			t.Error("a checksum was not looked at")
		}
		payload, err := c.Payload(7, []byte("key"), signed(c, encoding, stored))
		if err == nil && len(payload) > maxPayload {
			t.Errorf("%d bytes", len(payload))
		}
	})
}
