package segment

import "testing"

// FuzzRecords reads unpacked bodies with any content.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{0, 1, 1, 7, 0, 0, 0, 'a', 5, 0, 0})
	f.Fuzz(func(_ *testing.T, body []byte) {
		_ = records(body, 0, func(Record) bool { return true })
	})
}

// FuzzIndex reads indexes with any content.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(indexMagic))
	f.Fuzz(func(_ *testing.T, content []byte) {
		if x, err := parseIndex(content); err == nil {
			_ = x.of(7)
		}
	})
}
