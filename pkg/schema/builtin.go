package schema

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
)

// builtin.json.gz is made by hack/schemas, see `make generate`.
//
//go:embed builtin.json.gz
var builtin []byte

// Builtin returns the resources that every API server has, as of the version of Kubernetes that the sandbox is built from. Alpha and
// beta versions are not among them. Each call reads them anew, which takes some milliseconds.
func Builtin() (*Set, error) {
	set := &Set{}
	text, err := Decompress(builtin)
	if err == nil {
		err = set.UnmarshalJSON(text)
	}
	if err != nil {
		return nil, fmt.Errorf("built-in schemas: %w", err)
	}
	return set, nil
}

// Decompress returns the text of a file that `make generate` has written.
func Decompress(file []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
