package rawjson

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Quote returns s as a JSON string, see [AppendString].
func Quote(s string) string { return string(AppendString(make([]byte, 0, len(s)+2), s)) }

// AppendString appends s as a JSON string. It escapes the same characters as encoding/json without
// HTML escaping: those that JSON demands, and the two line separators of Unicode. Invalid UTF-8
// becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		if plain[s[i]] {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r >= utf8.RuneSelf && r != '\u2028' && r != '\u2029' && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		b = append(b, s[from:i]...)
		b = appendEscape(b, r)
		i += size
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// plain are the bytes that a JSON string contains unescaped.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

func appendEscape(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	}
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// Identity identifies an object of Kubernetes and one of its states.
type Identity struct {
	APIVersion, Kind                      string
	Name, Namespace, UID, ResourceVersion string
}

// JSON returns an object with the identity only. It leaves out empty fields.
func (id *Identity) JSON() string {
	b := make([]byte, 0, 96+len(id.APIVersion)+len(id.Kind)+len(id.Name)+len(id.Namespace)+len(id.UID)+len(id.ResourceVersion))
	b = appendField(append(b, '{'), "apiVersion", id.APIVersion)
	b = appendField(b, "kind", id.Kind)
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `"metadata":{`...)
	b = appendField(b, "name", id.Name)
	b = appendField(b, "namespace", id.Namespace)
	b = appendField(b, "uid", id.UID)
	b = appendField(b, "resourceVersion", id.ResourceVersion)
	return string(append(b, "}}"...))
}

func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(append(append(b, '"'), name...), `":`...)
	return AppendString(b, value)
}

// AppendLine appends JSON text as one line. Line breaks in JSON are white space: within strings
// they are escaped.
func AppendLine(b, data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return append(b, data...)
	}
	buf := bytes.NewBuffer(b)
	if err := json.Compact(buf, data); err != nil {
		return append(b, "null"...) // invalid JSON, which no handler can produce
	}
	return buf.Bytes()
}
