package addresses_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/addresses"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestKindOf(t *testing.T) {
	// Guarantee: guest-http
	for kind, texts := range map[addresses.Kind]string{
		addresses.Public: "8.8.8.8 172.32.0.1 100.128.0.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 169.253.0.1 192.0.0.9 2001:4860:4860::8888 2001:3::1 2001:20::1 2001:30::1 " +
			"2620:4f:8000::1 192.31.196.1 168.63.129.17 2002:808:808::1",
		addresses.Private: "127.0.0.1 127.9.9.9 ::1 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fd00::1 100.64.0.1 198.18.0.1 192.0.0.8 fec0::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1::1 64:ff9b::7f00:1 " +
			"64:ff9b:1::808:808 64:ff9b:1:808:8:800:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 ::808:808 ::ffff:0:808:808 2001:2::1 2001:10::1",
		addresses.Metadata: "169.254.169.254 169.254.0.1 fe80::1 fe80::1%eth0 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: " +
			"168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd20:ce::254 64:ff9b::a83f:8110 2002:a83f:8110::1 " +
			"64:ff9b:1::a9fe:a9fe 64:ff9b:1:a9fe:a9:fe00:: ::a9fe:a9fe ::ffff:0:a9fe:a9fe 2001:0:0:0:0:0:5601:5601 2001:0:a9fe:a9fe::1 fe80::5efe:a9fe:a9fe",
		addresses.Never: "0.0.0.0 :: 0.1.2.3 255.255.255.255 240.0.0.1 224.0.0.1 ff02::1 64:ff9b:: 192.0.2.1 198.51.100.1 203.0.113.1 192.88.99.1 2001:db8::1 3fff::1 5f00::1 100::1 4000::1",
	} {
		for text := range strings.FieldsSeq(texts) {
			if got := addresses.KindOf(netip.MustParseAddr(text)); got != kind {
				t.Errorf("%s is of kind %d, want %d", text, got, kind)
			}
		}
	}
	if addresses.KindOf(netip.Addr{}) != addresses.Never {
		t.Error("no address is one")
	}
}
