//! Well-known packages of Java.

/// Packages of the Java platform: no program has classes in them.
const PLATFORM: &[&str] = &["java.", "javax.", "jdk.", "sun.", "com.sun.", "jakarta."];

/// Packages of well-known Java libraries, for classes of which it is not known where they come
/// from.
const LIBRARIES: &[&str] = &[
    "akka.",
    "ch.qos.logback.",
    "com.fasterxml.",
    "com.google.common.",
    "com.google.gson.",
    "com.google.protobuf.",
    "com.lmax.disruptor.",
    "com.mchange.",
    "com.mysql.",
    "com.zaxxer.hikari.",
    "groovy.",
    "io.grpc.",
    "io.lettuce.",
    "io.micrometer.",
    "io.micronaut.",
    "io.netty.",
    "io.opentelemetry.",
    "io.quarkus.",
    "io.reactivex.",
    "io.undertow.",
    "io.vertx.",
    "kotlin.",
    "kotlinx.",
    "net.bytebuddy.",
    "okhttp3.",
    "okio.",
    "oracle.jdbc.",
    "org.aopalliance.",
    "org.apache.",
    "org.aspectj.",
    "org.codehaus.",
    "org.eclipse.",
    "org.glassfish.",
    "org.h2.",
    "org.hibernate.",
    "org.jboss.",
    "org.mariadb.jdbc.",
    "org.mozilla.",
    "org.postgresql.",
    "org.quartz.",
    "org.reactivestreams.",
    "org.slf4j.",
    "org.springframework.",
    "org.xerial.",
    "org.yaml.",
    "reactor.",
    "redis.clients.",
    "rx.",
    "scala.",
    "sbt.",
];

/// Returns whether a class or method of this full name is the platform's.
pub fn is_platform(name: &str) -> bool {
    PLATFORM.iter().any(|package| name.starts_with(package))
}

/// Returns whether a class or method of this full name is in a well-known library.
pub fn is_library(name: &str) -> bool {
    LIBRARIES.iter().any(|package| name.starts_with(package))
}
