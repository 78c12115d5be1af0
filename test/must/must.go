// Package must checks in one line that a call in a test succeeds, or how it fails.
package must

import "strings"

// T is the part of testing.TB that the package needs; *rapid.T has it too.
type T interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// Succeed ends the test if err is not nil.
func Succeed(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Report fails the test if err is not nil, and continues: for clean-up, and for goroutines of a
// test.
func Report(t T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Fail fails the test unless err is an error whose text contains want, and continues.
func Fail(t T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want one with %q", err, want)
	}
}
