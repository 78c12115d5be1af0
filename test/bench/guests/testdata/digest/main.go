// Command digest is a handler of the kind wasm that needs much CPU: it makes an event of a digest
// of the object, which it computes many times.
package main

import (
	"crypto/sha256"
	"encoding/hex"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

// times is the number of digests for each delta.
const times = 32

var _ = deltarouter.Handle(handle)

func main() {}

func handle(d deltarouter.Delta) ([]deltarouter.Event, error) {
	var sum [sha256.Size]byte
	for range times {
		h := sha256.New()
		h.Write(sum[:])
		h.Write(d.Object)
		h.Sum(sum[:0])
	}
	return []deltarouter.Event{{Data: map[string]string{"pod": d.Name, "digest": hex.EncodeToString(sum[:])}}}, nil
}
