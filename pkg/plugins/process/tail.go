package process

import (
	"strings"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/lines"
)

// tailSize is how many bytes are told of what a plugin last said.
const tailSize = 500

// tail keeps the end of what is written to it. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(0, len(p)-tailSize):]...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

// String returns it on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.FieldsFunc(lines.Clean(t.text, tailSize), func(r rune) bool { return r == '\n' }), "; ")
}
