package work

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet/fence"
)

// Large bodies travel in parts and are whole again.
func TestParts(t *testing.T) {
	for _, size := range []int{0, 1, maxPart, maxPart + 1, 5 * maxPart} {
		body := bytes.Repeat([]byte("x"), size)
		var a Assembly
		parts := split("s", body, 0, "id")
		for i, m := range parts {
			got, err := a.Add(m.Header, m.Data)
			if err != nil || (i == len(parts)-1) == a.Open() || i == len(parts)-1 && !bytes.Equal(got, body) {
				t.Errorf("%d bytes, part %d: %v", size, i, err)
			}
		}
		if len(fence.Split(parts)) != 1 {
			t.Errorf("%d bytes: the parts are not one batch", size)
		}
	}
	for _, m := range split("s", make([]byte, 100_000), 64<<10, "id") {
		if m.Size() > 64<<10 {
			t.Errorf("a message has %d bytes", m.Size())
		}
	}
}

// Parts that do not follow each other are an error, and the next message is whole.
func TestPartsMissing(t *testing.T) {
	part := func(text string) nats.Header { return nats.Header{partHeader: {text}} }
	for _, headers := range [][]nats.Header{
		{part("2/2")},
		{part("0/2")},
		{part("x")},
		{part("1/9999")},
		{part("3/2")},
		{part("-1/2")},
		{part("1/3"), part("3/3")},
		{part("1/3"), part("2/2")},
		{part("1/2"), part("1/2")},
		{part("1/2"), {}},
	} {
		var a Assembly
		for i, h := range headers {
			_, err := a.Add(h, []byte("x"))
			if last := i == len(headers)-1; (err != nil) != last || last && !errors.Is(err, ErrFormat) {
				t.Errorf("%v: part %d: %v", headers, i, err)
			}
		}
		if body, err := a.Add(nil, []byte("y")); err != nil || string(body) != "y" {
			t.Errorf("%v: then %q, %v", headers, body, err)
		}
	}
	var a Assembly
	large := make([]byte, fence.HardBytes/2+1)
	if _, err := a.Add(part("1/3"), large); err != nil {
		t.Error(err)
	}
	if _, err := a.Add(part("2/3"), large); !errors.Is(err, ErrFormat) {
		t.Errorf("a message that is too large: %v", err)
	}
}
