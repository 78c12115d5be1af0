package deltarouter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// MarshalJSON returns the event in the encoding for the router.
func (e Event) MarshalJSON() ([]byte, error) { return e.append(nil) }

// append appends the event in the encoding of the ABI to b. After an error b is unchanged.
func (e Event) append(b []byte) ([]byte, error) {
	out := append(b, '{')
	if e.Type != "" {
		out = append(appendString(append(out, `"type":`...), e.Type), ',')
	}
	if e.Subject != "" {
		out = append(appendString(append(out, `"subject":`...), e.Subject), ',')
	}
	out, err := appendJSON(append(out, `"data":`...), e.Data)
	if err != nil {
		return b, fmt.Errorf("event data: %w", err)
	}
	return append(out, '}'), nil
}

// appendJSON appends v. It encodes the most frequent types of data without reflection.
// encoding/json encodes all others, such as structs.
func appendJSON(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case json.RawMessage:
		return appendRaw(b, v)
	case Value:
		return appendRaw(b, v)
	case []byte:
		return appendRaw(b, v) // not base64
	case string:
		return appendString(b, v), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int32:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case []string:
		return appendList(b, v)
	case []int64:
		return appendList(b, v)
	case []any:
		return appendList(b, v)
	case []map[string]any:
		return appendList(b, v)
	case map[string]string:
		return appendMap(b, v)
	case map[string]any:
		return appendMap(b, v)
	}
	buf := bytes.NewBuffer(b)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return b, err
	}
	return buf.Bytes()[:buf.Len()-1], nil // without the line end of the encoder
}

// appendRaw appends a text that is JSON already.
func appendRaw(b, raw []byte) ([]byte, error) {
	if raw == nil {
		return append(b, "null"...), nil
	}
	buf := bytes.NewBuffer(b)
	if err := json.Compact(buf, raw); err != nil {
		return b, err
	}
	return buf.Bytes(), nil
}

func appendList[T any](b []byte, list []T) (_ []byte, err error) {
	if list == nil {
		return append(b, "null"...), nil
	}
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, v); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// appendMap appends the members in the order of their keys.
func appendMap[T any](b []byte, m map[string]T) (_ []byte, err error) {
	if m == nil {
		return append(b, "null"...), nil
	}
	var few [8]string // on the stack
	keys := few[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		if b, err = appendJSON(b, m[k]); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendString appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	const hex, short = "0123456789abcdef", "btn?fr" // \b is 8
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i += size
			continue
		}
		i++
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i-1]...)
		from = i
		switch {
		case c >= ' ':
			b = append(b, '\\', c)
		case c >= 8 && c <= 13 && c != 11:
			b = append(b, '\\', short[c-8])
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[from:]...), '"')
}
