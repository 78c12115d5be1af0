//go:build !amd64

package rawjson

func leave(s string, i, depth int) (end int, found bool) { return leaveWords(s, i, depth) }

func (s *scanner) look(int) bool { return false }
