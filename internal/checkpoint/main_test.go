package checkpoint_test

import (
	"bufio"
	"fmt"
	"os"
	"testing"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/ramdisk"
)

// TestMain is also the main function of the second process of some tests.
func TestMain(m *testing.M) {
	if path := os.Getenv("CHECKPOINT_HOLD"); path != "" {
		os.Exit(hold(path))
	}
	if path := os.Getenv("CHECKPOINT_LIMITED"); path != "" {
		os.Exit(limited(path))
	}
	effort.Checks(50, 500, 5000)
	leaks.Main(ramdisk.Wrap(m, 1<<30))
}

// hold keeps the state file open until stdin is closed.
func hold(path string) int {
	db, err := checkpoint.Open(checkpoint.Config{Path: path})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("open")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // it ends when the test does
	if err := db.Close(); err != nil {
		return 1
	}
	return 0
}
