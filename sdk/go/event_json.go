package deltarouter

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// append adds the event's envelope, as the ABI wants it, to b.
func (e Event) append(b []byte) ([]byte, error) {
	envelope := struct {
		Type    string `json:"type,omitempty"`
		Subject string `json:"subject,omitempty"`
		Data    any    `json:"data"`
	}{e.Type, e.Subject, e.Data}
	if raw, ok := e.Data.([]byte); ok {
		envelope.Data = json.RawMessage(raw) // not base64
	}
	buf := bytes.NewBuffer(b)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(envelope); err != nil {
		return b, fmt.Errorf("event data: %w", err)
	}
	buf.Truncate(buf.Len() - 1) // the encoder ends with a new line
	return buf.Bytes(), nil
}
